/* Follows a file to which a run appends JSON lines. Each call reads the new lines. */
#pragma once
#include <sys/types.h>

#include "src/base/json.h"

enum {
    FSDP_TAIL_LINE_BYTES = 4 << 20, /* a longer line is left out and counted as bad */
    /* Number of bytes at the beginning of the file that are compared. If one of them has changed,
     * the file is treated as a new file. */
    FSDP_TAIL_HEAD_BYTES = 256
};

typedef struct fsdp_tail {
    char *path; /* relative to the folder; owned */
    dev_t device;
    ino_t inode;    /* device and inode of the file that was read last; inode 0: none yet */
    int64_t offset; /* number of bytes that were read, including those in `rest` */
    int64_t size;   /* size of the file when it was read last */
    char *rest;     /* [rest_len] the beginning of a line whose end is not there yet; owned */
    size_t rest_len, rest_cap;
    bool skips;  /* the current line is too long, and is skipped up to its end */
    int64_t bad; /* number of lines that were left out: not a JSON object, or too long */
    char head[FSDP_TAIL_HEAD_BYTES]; /* [head_len] the first bytes of the file */
    size_t head_len;
} fsdp_tail;

typedef struct fsdp_tail_reader {
    /* Called for each complete line, with its JSON object. An error ends the reading; only
     * FSDP_ERR_NOMEM should do that. */
    fsdp_status (*line)(void *context, fsdp_json_node line);
    /* Called if the file was replaced, truncated or written again, before its first line is read
     * again. The function must forget all earlier lines. */
    void (*restart)(void *context);
    void *context;
} fsdp_tail_reader;

/* Follow the file `path`, which is copied. */
FSDP_MUST_CHECK fsdp_status fsdp_tail_init(fsdp_tail *tail, const char *path);
void fsdp_tail_fini(fsdp_tail *tail);
/* Read the new lines of the file below the folder `root` until `deadline_ns` (fsdp_clock_ns()) has
 * passed. Set *more to true if lines are left, otherwise to false. A last line without a newline is
 * left for a later call, even if it looks complete. If the file was replaced or truncated, or if
 * its first bytes have changed, read it from the beginning. It is no error if the file does not
 * exist or cannot be read. */
FSDP_MUST_CHECK fsdp_status fsdp_tail_read(fsdp_tail *tail, int root, int64_t deadline_ns,
                                           const fsdp_tail_reader *reader, bool *more);
