/* A job in which the last rank does something else than the others. A case says what it does, over
 * which ranks, and which errors all of them must return. The same cases run with ranks as threads
 * and as processes. */
#pragma once
#include "tests/fsdp/tree.h"
#include "tests/test.h"

enum {
    ODD_MAX_RANKS = 4
};

/* Which ranks train a model together. */
typedef enum odd_layout {
    ODD_WORLD, /* all ranks train one model */
    ODD_PAIRS, /* each half of four ranks trains its own model, over split groups */
    ODD_MESH,  /* four ranks, HSDP over 2 x 2 */
} odd_layout;

typedef struct odd_case {
    const char *name;
    /* The last rank calls this while the others run their second step. */
    fsdp_status (*odd)(trainee *m);
    /* Or all ranks call this instead of that step; `odd` is true on the last rank. */
    fsdp_status (*all)(trainee *m, bool odd);
    const char *text;    /* in the message of every rank */
    const char *peers;   /* in the message of every rank but the last; NULL: no further text */
    bool sharded_only;   /* not with no_shard, which does not gather */
    bool resharded_only; /* not with parameters that are kept after forward */
    bool agreed;         /* the ranks exchanged the error by fsdp_agree() */
    bool processes_only; /* the case ends the process */
    bool world_only;     /* only ranks of its own group notice a rank that leaves */
} odd_case;

extern const odd_case odd_cases[];
extern const size_t n_odd_cases;

/* Filled by the ranks, in memory that all of them share. */
typedef struct odd_job {
    const odd_case *kase;
    odd_layout layout;
    const fsdp_fully_shard_options *options;
    struct {
        fsdp_status status;
        char message[1024];
        double seconds; /* from the odd step to the error */
    } ranks[ODD_MAX_RANKS];
} odd_job;

bool odd_applies(const odd_case *kase, odd_layout layout, const fsdp_fully_shard_options *options);
/* An fsdp_rank_fn over an odd_job. */
FSDP_MUST_CHECK fsdp_status odd_rank(fsdp_group *world, void *job);
/* Check that all ranks failed with the same message, long before the timeout. */
void odd_check(fsdp_test *t, const odd_job *job, int world_size);
