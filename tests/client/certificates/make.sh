#!/bin/sh
# Makes the certificates of the tests, in the folder it stands in, by OpenSSL 3: good from 2020 to 2120.
# Everybody knows their keys, so they are good for tests and nothing else.
set -eu
cd "$(dirname "$0")"
rm -f ./*.pem
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
touch "$work/index"
cat >"$work/config" <<END
[ca]
default_ca = tests
[tests]
database = $work/index
new_certs_dir = $work
default_md = sha256
policy = names
unique_subject = no
rand_serial = yes
[names]
commonName = supplied
[authority]
basicConstraints = critical,CA:TRUE
keyUsage = critical,keyCertSign,cRLSign
subjectKeyIdentifier = hash
END

request() { # name of the file, common name
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$2" \
        -keyout "$work/$1.key" -out "$work/$1.csr"
}

authority() { # name of the file, common name
    request "$1" "$2"
    openssl ca -batch -notext -config "$work/config" -selfsign -extensions authority -keyfile "$work/$1.key" \
        -startdate 20200101000000Z -enddate 21200101000000Z -in "$work/$1.csr" -out "$1.pem"
}

signed() { # name of the file, common name, extension, authority, year of its end; key and certificate are one file
    request "$1" "$2"
    printf 'subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n%s\n' "$3" >"$work/$1.ext"
    openssl ca -batch -notext -config "$work/config" -extfile "$work/$1.ext" -cert "$4.pem" -keyfile "$work/$4.key" \
        -startdate 20200101000000Z -enddate "${5}0101000000Z" -in "$work/$1.csr" -out "$work/$1.crt"
    cat "$work/$1.key" "$work/$1.crt" >"$1.pem"
}

authority ca "authority of the tests"
authority other-ca "another authority"
signed server localhost subjectAltName=DNS:localhost,IP:127.0.0.1 ca 2120
signed elsewhere elsewhere.example subjectAltName=DNS:elsewhere.example ca 2120
signed expired localhost subjectAltName=DNS:localhost,IP:127.0.0.1 ca 2021
signed client alice extendedKeyUsage=clientAuth ca 2120
signed stranger alice extendedKeyUsage=clientAuth other-ca 2120
cp "$work/client.crt" client-certificate.pem
openssl pkcs8 -topk8 -in "$work/client.key" -passout pass:opens-it -out client-key.pem
chmod 644 ./*.pem
