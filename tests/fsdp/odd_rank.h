/* A job in which the last rank does something else than the others: what, on which ranks, and what
 * all of them are to say. The same cases run over threads and over processes. */
#pragma once
#include "tests/fsdp/tree.h"
#include "tests/test.h"

enum {
    ODD_MAX_RANKS = 4
};

/* Who trains what together. */
typedef enum odd_layout {
    ODD_WORLD, /* all ranks one model */
    ODD_PAIRS, /* of four ranks, two and two a model of their own, over split groups */
    ODD_MESH,  /* four ranks, HSDP over 2 x 2 */
} odd_layout;

typedef struct odd_case {
    const char *name;
    /* What the last rank does while the others do their second step. */
    fsdp_status (*odd)(trainee *m);
    /* Or what all ranks do in place of that step, `odd` telling the last one. */
    fsdp_status (*all)(trainee *m, bool odd);
    const char *text;    /* in every rank's message */
    const char *peers;   /* in every other rank's; NULL: nothing else */
    bool sharded_only;   /* whole parameters (no_shard) are not gathered */
    bool resharded_only; /* likewise parameters that are kept after forward */
    bool agreed;         /* the ranks told each other by fsdp_agree() */
    bool processes_only; /* it ends the process */
    bool world_only;     /* a rank that leaves is missed by those of its own group alone */
} odd_case;

extern const odd_case odd_cases[];
extern const size_t n_odd_cases;

/* Filled by the ranks, in memory that all of them see. */
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
/* All ranks have failed with one message, long before the timeout. */
void odd_check(fsdp_test *t, const odd_job *job, int world_size);
