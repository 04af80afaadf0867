# The types that C has for the numbers of record_kernel.py.  Every index stays checked.
cimport cython
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_SET_ITEM

cdef extern from "Python.h":
    ctypedef struct PyTypeObject:
        pass
    object PyType_GenericAlloc(PyTypeObject *, Py_ssize_t)
    void PyObject_GC_UnTrack(void *)

cdef tuple _NO_HEADERS
cdef long long _FAR, _INT32
cdef unsigned int _SEED, _M, _MASK


# record_tuples.py.  `kind` is a tuple class without attributes of its own, and a record is seen by nobody before it has
# all its items.  One without headers leaves the cycle collector: it refers to numbers, bytes and text.

cdef inline void _put_into(object record, Py_ssize_t place, object item) noexcept:
    Py_INCREF(item)  # the next line takes one over
    PyTuple_SET_ITEM(record, place, item)


cdef inline object tuple_of_five(
    object kind, object offset, object timestamp, object key, object value, object headers
):
    record = PyType_GenericAlloc(<PyTypeObject *> kind, 5)
    _put_into(record, 0, offset)
    _put_into(record, 1, timestamp)
    _put_into(record, 2, key)
    _put_into(record, 3, value)
    _put_into(record, 4, headers)
    if headers is _NO_HEADERS:
        PyObject_GC_UnTrack(<void *> record)
    return record


cdef inline object tuple_of_seven(
    object kind, object topic, object partition, object offset, object timestamp, object key, object value,
    object headers,
):
    record = PyType_GenericAlloc(<PyTypeObject *> kind, 7)
    _put_into(record, 0, topic)
    _put_into(record, 1, partition)
    _put_into(record, 2, offset)
    _put_into(record, 3, timestamp)
    _put_into(record, 4, key)
    _put_into(record, 5, value)
    _put_into(record, 6, headers)
    if headers is _NO_HEADERS:
        PyObject_GC_UnTrack(<void *> record)
    return record


@cython.locals(
    end=Py_ssize_t, at=Py_ssize_t, stop=Py_ssize_t, n=longlong, timestamp=longlong, offset=longlong,
    stamped=longlong, key=object, value=object, found=list, view="const unsigned char[:]",
    chars="const unsigned char *",
)
cpdef list decode_records(
    bytes body, Py_ssize_t count, long long base_offset, long long base_timestamp, object append_time,
    object kind, object topic, object partition, long long first,
)

@cython.locals(n=longlong, end=Py_ssize_t, count=Py_ssize_t)
cdef Py_ssize_t _decode_headers(
    bytes body, const unsigned char[:] view, Py_ssize_t at, Py_ssize_t stop, list found
) except? -2

cpdef Py_ssize_t append_record(
    bytearray out, Py_ssize_t place, object timestamp_delta, object key, object value, Py_ssize_t room
) except? -2

@cython.locals(before=Py_ssize_t, taken=Py_ssize_t, count=Py_ssize_t, size=Py_ssize_t)
cpdef Py_ssize_t append_records(
    bytearray out, Py_ssize_t place, object timestamp_delta, list keys, list values, Py_ssize_t room
) except? -2

@cython.locals(
    key_size=Py_ssize_t, value_size=Py_ssize_t, key_length=longlong, value_length=longlong, delta=longlong,
    size=Py_ssize_t, whole=Py_ssize_t,
)
cdef Py_ssize_t _append(
    bytearray out, long long place, long long timestamp_delta, object key, object value, Py_ssize_t room
) except? -2

cdef Py_ssize_t _size(long long n) noexcept

cdef int _put(bytearray out, long long n) except -1

@cython.locals(
    end=Py_ssize_t, stop=Py_ssize_t, place=Py_ssize_t, n=longlong, earliest=longlong, latest=longlong, keyless=bint,
)
cpdef object check_records(const unsigned char[:] body, Py_ssize_t at, Py_ssize_t first, Py_ssize_t until)

@cython.locals(n=longlong)
cpdef Py_ssize_t pass_over(const unsigned char[:] body, Py_ssize_t at, Py_ssize_t first, Py_ssize_t until) except? -2

@cython.locals(shift=int, byte=longlong)
cdef (long long, Py_ssize_t) _longer(const unsigned char[:] body, Py_ssize_t at, long long n, int most)

@cython.locals(
    end=Py_ssize_t, at=Py_ssize_t, stop=Py_ssize_t, n=longlong, timestamp=longlong, offset=longlong,
    stamped=longlong, key_begin=Py_ssize_t, key_end=Py_ssize_t, value_begin=Py_ssize_t, null=int,
)
cpdef Py_ssize_t index_records(
    const unsigned char[:] body, Py_ssize_t shift, Py_ssize_t count, long long base_offset, long long base_timestamp, object append_time,
    long long low, long long high, int[:] places, unsigned char[:] nulls, long long[:] offsets, long long[:] timestamps,
    Py_ssize_t row,
) except? -2

@cython.locals(h=cython.uint, k=cython.uint, at=Py_ssize_t, end=Py_ssize_t)
cpdef unsigned int murmur2(const unsigned char[:] data) except? 1
