/* One rank of a run, as its file describes it: Note [Rank files] in src/monitor/monitor.h. */
#pragma once
#include <fsdp/tensor.h>

#include "src/dashboard/tail.h"

enum {
    FSDP_RANK_SAMPLES = 256, /* maximum number of samples of a rank; an even number */
    FSDP_RANK_UNITS = 4096   /* maximum number of units of a rank; the rest is left out */
};

/* What a rank did in an interval. When a rank has too many samples, neighboring samples are merged
 * in pairs. */
typedef struct fsdp_rank_sample {
    double time, step;              /* at the end of the interval: the time in seconds since 1970,
                                     * and the number of steps done */
    double seconds, wait_s, data_s; /* sums over the steps in the interval */
    double stopped_s;               /* see fsdp_rank; 0 if unknown */
    double no_core_s; /* part of `seconds`, outside of wait_s and data_s, in which the rank had no
                         core */
    double steps;     /* number of steps in the interval */
    /* The memory of the rank in bytes, at the moment in the interval when most memory was
     * allocated. allocated and reserved are totals. tags: the allocated bytes by purpose. */
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
    double started, time; /* start of the rank, and time of its last line: seconds since 1970 */
    double earlier_s;     /* total duration of earlier runs that this run continues, and whose
                             lines are in the same file */
    double step;
    /* Sums over all steps except the first, whose time includes the warm-up. While there is only
     * the first step, they are the times of this step. */
    double steps, seconds, wait_s, data_s, no_core_s;
    /* Time of the steps in which the first thread neither ran, nor was ready to run, nor waited for
     * ranks or data. Only meaningful if knows_cpu is true. */
    double stopped_s;
    bool knows_cpu;  /* true: the lines of the rank's file say how long the rank ran on a core */
    bool saw_step;   /* a line with a step was read */
    bool only_first; /* the sums contain only the first step */
    bool ended;      /* the rank wrote that it has ended or failed */
    fsdp_rank_sample samples[FSDP_RANK_SAMPLES];
    size_t n_samples;
    double sample_lines;   /* number of lines in a full sample; 0 means 1 */
    double last_lines;     /* number of lines in the last sample */
    fsdp_rank_unit *units; /* [n_units]; owned */
    size_t n_units;
} fsdp_rank;

/* Create the rank whose file is `path`. */
FSDP_MUST_CHECK fsdp_status fsdp_rank_create(const char *path, int number, fsdp_rank **rank);
void fsdp_rank_destroy(fsdp_rank *rank); /* accepts NULL */
/* Read the new lines of the rank's file, as fsdp_tail_read() does. Set *changed to true if there
 * were any, otherwise to false. */
FSDP_MUST_CHECK fsdp_status fsdp_rank_read(fsdp_rank *rank, int root, int64_t deadline_ns,
                                           bool *changed, bool *more);
