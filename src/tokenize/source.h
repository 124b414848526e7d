/* Files of data, read as one stream of records: documents of plain text, rows of CSV, JSON and
 * Arrow, and examples of a dataset. A record is what one thread tokenizes. Records are
 * read in batches, in the order of the files, so memory does not depend on the size of the files.
 *
 * Rows of causal and masked language models are not encoded here, so threads can share the work.
 * Rows of other tasks are examples of a dataset, which keeps 16 bytes of each row in memory. */
#pragma once
#include <fsdp/data.h>

#include "src/base/str.h"
#include "src/data/arrow/table.h"
#include "src/data/json/jsonl_keys.h"

typedef enum fsdp_record_kind {
    FSDP_RECORD_DOCUMENT, /* a text */
    FSDP_RECORD_PAIR,     /* a prompt, which may be "", and a text */
    FSDP_RECORD_JSON,     /* the text of a row of JSON */
    FSDP_RECORD_ARROW,    /* the index of a row of a table */
    FSDP_RECORD_EXAMPLE,  /* the index of an example of a dataset */
} fsdp_record_kind;

typedef struct fsdp_record {
    size_t at, length; /* DOCUMENT, PAIR, JSON: bytes[at, at + length), followed by NUL. PAIR: the
                          prompt, after whose NUL the text begins, which also ends with NUL */
    int64_t line;      /* line of the file, from 1; 0 for an index */
    int64_t number;    /* number of a row in an array of JSON, from 1; otherwise 0 */
    int64_t index;     /* ARROW, EXAMPLE */
} fsdp_record;

/* Consecutive records of one file. Initialise it with {0}. It can be used for several batches. */
typedef struct fsdp_record_batch {
    fsdp_record_kind kind;
    const char *path;     /* borrowed from the source */
    bool validation;      /* the records are of the data for validation */
    int64_t first;        /* number of records before the first one, in all files */
    fsdp_record *records; /* [len] */
    size_t len, records_cap;
    char *bytes; /* [used] */
    size_t used, bytes_cap;
    fsdp_arrow_table *table; /* ARROW; borrowed */
    fsdp_dataset *dataset;   /* EXAMPLE; borrowed */
} fsdp_record_batch;

void fsdp_record_batch_fini(fsdp_record_batch *batch);

typedef struct fsdp_source_options {
    const char *data;
    const char *validation_data; /* path of the validation data; NULL: not given */
    bool find_validation; /* without validation_data, also read the split or the files of `data`
                             that are for validation, if there are any */
    const fsdp_dataset_options *rows; /* with defaults filled in; borrowed */
    fsdp_task task;                   /* what the rows are for */
    int64_t max_samples;              /* largest number of rows of the training data that are read;
                                         0: all */
} fsdp_source_options;

typedef struct fsdp_record_source fsdp_record_source;

/* Find the files and the kinds of their records. Each file is opened when the files before it have
 * been read. */
FSDP_MUST_CHECK fsdp_status fsdp_record_source_open(const fsdp_source_options *options,
                                                    fsdp_record_source **out);
void fsdp_record_source_close(fsdp_record_source *source); /* accepts NULL */
/* Read the next batch. At the end, batch->len is 0. Errors contain file and line. Only one thread
 * at a time may call this. Tables and datasets of batches stay open until the source is closed. */
FSDP_MUST_CHECK fsdp_status fsdp_record_source_next(fsdp_record_source *source,
                                                    fsdp_record_batch *batch);
/* Skip the next `count` records. Fails if there are fewer. */
FSDP_MUST_CHECK fsdp_status fsdp_record_source_skip(fsdp_record_source *source, int64_t count);

/* Return true if there are data for validation. */
bool fsdp_record_source_has_validation(const fsdp_record_source *source);
/* Return true if `data` has a part for validation that is not read. */
bool fsdp_record_source_leaves_validation(const fsdp_record_source *source);
/* Return the FSDP_USES_* that the forms of the files imply. Those of datasets are known when the
 * last record has been read. */
unsigned fsdp_record_source_uses(const fsdp_record_source *source);
/* Set *uses to the FSDP_USES_* that rows of these files can have, before any row is read. */
FSDP_MUST_CHECK fsdp_status fsdp_record_source_possible_uses(const fsdp_record_source *source,
                                                             unsigned *uses);
/* Return the bytes of texts that will be read, or 0 if they are unknown: files are compressed or
 * are not texts, or max_samples limits the rows. */
int64_t fsdp_record_source_bytes(const fsdp_record_source *source);
/* Return messages about the use of the columns of the files that have been read, one on each line,
 * or NULL if there are none. */
const char *fsdp_record_source_notes(const fsdp_record_source *source);
/* Make a message about `unused`, the keys in rows of JSON and Arrow that are not used. The caller
 * owns *note, which is NULL if there is nothing to say. */
FSDP_MUST_CHECK fsdp_status fsdp_record_source_unused(const fsdp_record_source *source,
                                                      const fsdp_unused_keys *unused, char **note);
/* Append a line for each file, with its size and its time of modification, to `text`. */
FSDP_MUST_CHECK fsdp_status fsdp_record_source_identity(const fsdp_record_source *source,
                                                        fsdp_str *text);
