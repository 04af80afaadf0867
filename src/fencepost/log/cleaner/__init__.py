"""Log compaction (cleanup.policy=compact): of every key the newest record stays, at its offset.

settings      what a person may set, with Apache Kafka's names
choice        which partition is worth it, how far it may be cleaned, and which segments become one
retention     which batches and records stay: the rules
offset_map    the newest offset of each key, bounded in memory
rewriting     a batch with some of its records
cleaning      one pass over one partition, in small steps
swapping      a cleaned segment takes the place of those it was made from, whole or not at all
pace          how long the cleaner works at a time
work          a pass that is under way, and what is told of passes
surveying     a look at all logs, for those that are worth a pass
log_cleaner   when all that is done, and what came of it
"""
