/* One rank of a run, as its file says: Note [Rank files] in src/monitor/monitor.h. */
#pragma once
#include <fsdp/tensor.h>

#include "src/dashboard/tail.h"

enum {
    FSDP_RANK_SAMPLES = 256, /* most samples; an even number */
    FSDP_RANK_UNITS = 4096   /* units beyond these are left out */
};

/* What a rank did in an interval. When there are too many samples, pairs are merged. */
typedef struct fsdp_rank_sample {
    double time, step;              /* at its end: seconds since 1970, steps done */
    double seconds, wait_s, data_s; /* sums over its steps */
    double steps;
    /* amounts of memory at the moment when most was allocated */
    double allocated, reserved, tags[FSDP_TAG_COUNT];
} fsdp_rank_sample;

/* The collectives of a unit since the rank started. */
typedef struct fsdp_rank_unit {
    char *name; /* owned */
    double gathers, gather_bytes, reduces, reduce_bytes, all_reduces, all_reduce_bytes, wait_s;
} fsdp_rank_unit;

typedef struct fsdp_rank {
    fsdp_tail tail;
    int number;
    int64_t world_size, pid, threads;
    char host[128], device[64], state[64], message[1024]; /* "" if unknown */
    double started, time; /* when it started, and when it wrote last: seconds since 1970 */
    double step;
    double steps, seconds, wait_s,
        data_s; /* sums since it started; the first step counts only if it is the only one */
    /* since it started: time on the queue of a busy core, and the time in which that was counted */
    double queued_s, wall_s;
    bool saw_step;   /* a line with a step was read */
    bool only_first; /* the sums have only the first step */
    bool ended;      /* it wrote that it has ended or failed */
    fsdp_rank_sample samples[FSDP_RANK_SAMPLES];
    size_t n_samples;
    double sample_lines;   /* lines that a full sample has; 0 means 1 */
    double last_lines;     /* lines in the last sample */
    fsdp_rank_unit *units; /* [n_units]; owned */
    size_t n_units;
} fsdp_rank;

/* Create the rank whose file is `path`. */
FSDP_MUST_CHECK fsdp_status fsdp_rank_create(const char *path, int number, fsdp_rank **rank);
void fsdp_rank_destroy(fsdp_rank *rank); /* accepts NULL */
/* Read what is new, as fsdp_tail_read() does. *changed is set to true if there was anything. */
FSDP_MUST_CHECK fsdp_status fsdp_rank_read(fsdp_rank *rank, int root, int64_t deadline_ns,
                                           bool *changed, bool *more);
