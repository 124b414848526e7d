/* Reads data files as one sequence of records. A record is the piece of data that one thread
 * tokenizes: a document of plain text, a row of CSV, JSON or Arrow, or an example of a dataset.
 * Records are read in batches, in the order of the files, so the memory does not depend on the size
 * of the files.
 *
 * For causal and masked language models, a record holds a row that has not been encoded, so threads
 * can share the work of encoding. For other tasks, a record is the index of an example of an
 * fsdp_dataset, which keeps 16 bytes of each row in memory. */
#pragma once
#include <fsdp/data.h>

#include "src/base/str.h"
#include "src/data/arrow/table.h"
#include "src/data/json/jsonl_keys.h"

typedef enum fsdp_record_kind {
    FSDP_RECORD_DOCUMENT, /* a text */
    FSDP_RECORD_PAIR,     /* a row of CSV: a prompt, which may be "", and a text */
    FSDP_RECORD_JSON,     /* one row of JSON, as text */
    FSDP_RECORD_ARROW,    /* a row of an Arrow table: its index */
    FSDP_RECORD_EXAMPLE,  /* an example of a dataset: its index */
} fsdp_record_kind;

typedef struct fsdp_record {
    /* DOCUMENT, PAIR, JSON: the record is bytes[at, at + length), and a NUL follows it. PAIR: these
     * bytes are the prompt, a NUL and the text. */
    size_t at, length;
    int64_t line; /* line of the record in the file, from 1; 0 for ARROW and EXAMPLE */
    /* if the file is one JSON array: number of the row in the array, from 1; otherwise 0 */
    int64_t number;
    int64_t index; /* ARROW, EXAMPLE */
} fsdp_record;

/* Consecutive records of one file. Initialize it with {0}. It can be used for several batches. */
typedef struct fsdp_record_batch {
    fsdp_record_kind kind;
    const char *path;     /* borrowed from the source */
    bool validation;      /* true: the records are validation data; false: training data */
    int64_t first;        /* number of records of all files that come before this batch */
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
    /* If validation_data is NULL, also read the validation split or the validation files of `data`,
     * if there are any. */
    bool find_validation;
    const fsdp_dataset_options *rows; /* with defaults filled in; borrowed */
    fsdp_task task;                   /* the task for which the rows are used */
    int64_t max_samples;              /* largest number of training rows that are read; 0: all */
} fsdp_source_options;

typedef struct fsdp_record_source fsdp_record_source;

/* Find the files, and determine the kind of each file's records. No file is opened for reading
 * until all files before it have been read. */
FSDP_MUST_CHECK fsdp_status fsdp_record_source_open(const fsdp_source_options *options,
                                                    fsdp_record_source **out);
void fsdp_record_source_close(fsdp_record_source *source); /* accepts NULL */
/* Read the next batch. After the last record, batch->len is 0. Error messages contain file and
 * line. Only one thread at a time may call this. batch->table and batch->dataset stay valid until
 * the source is closed. */
FSDP_MUST_CHECK fsdp_status fsdp_record_source_next(fsdp_record_source *source,
                                                    fsdp_record_batch *batch);
/* Skip the next `count` records. Fails if there are fewer. */
FSDP_MUST_CHECK fsdp_status fsdp_record_source_skip(fsdp_record_source *source, int64_t count);

/* Return true if the source reads validation data. */
bool fsdp_record_source_has_validation(const fsdp_record_source *source);
/* Return true if `data` contains validation data that the source does not read. */
bool fsdp_record_source_leaves_validation(const fsdp_record_source *source);
/* Return the FSDP_USES_* flags (src/data/rows/rows_form.h) that follow from the formats of the
 * files. The flags of datasets are included only after the last record has been read. */
unsigned fsdp_record_source_uses(const fsdp_record_source *source);
/* Set *uses to the FSDP_USES_* flags (src/data/rows/rows_form.h) that rows of these files can have.
 * This does not read any row. */
FSDP_MUST_CHECK fsdp_status fsdp_record_source_possible_uses(const fsdp_record_source *source,
                                                             unsigned *uses);
/* Return the total size of the text files, or 0 if the number of bytes to be read is unknown. It is
 * unknown if a file is compressed or is not a text file, or if max_samples limits the rows. */
int64_t fsdp_record_source_bytes(const fsdp_record_source *source);
/* Return messages that say how the columns of the files were used, one per line, or NULL if there
 * are no messages. They cover the files that have been read so far. */
const char *fsdp_record_source_notes(const fsdp_record_source *source);
/* Set *note to a message about `unused`, the keys that rows of JSON and Arrow have but that are not
 * used, or to NULL if there is nothing to report. The caller owns *note. */
FSDP_MUST_CHECK fsdp_status fsdp_record_source_unused(const fsdp_record_source *source,
                                                      const fsdp_unused_keys *unused, char **note);
/* For each file, append a line with its path, its size and its time of modification to `text`. */
FSDP_MUST_CHECK fsdp_status fsdp_record_source_identity(const fsdp_record_source *source,
                                                        fsdp_str *text);
