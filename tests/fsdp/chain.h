/* A root and five units in a row, and what is gathered at each moment of a step: for the tests of
 * prefetch and of the controls. */
#pragma once
#include "src/comm/comm.h"
#include "tests/fsdp/tree.h"

enum {
    CHAIN_BLOCKS = 5,
    CHAIN_UNITS = CHAIN_BLOCKS + 1,
    CHAIN_TRACE = 128
};

/* One line of text for each kind of moment: "a:USSSS b:SUSSS ..." says of which unit it is, and the
 * state of each unit then: Sharded, Gathering, Unsharded. */
typedef struct chain {
    trainee m;
    fsdp_module *units[CHAIN_UNITS]; /* the blocks, then the root */
    struct chain_watch {
        fsdp_region_hooks hooks;
        struct chain *chain;
        char name;
    } inside[CHAIN_BLOCKS], around[CHAIN_BLOCKS];
    char forward[CHAIN_TRACE];        /* a block was entered in forward */
    char backward[CHAIN_TRACE];       /* in backward */
    char after_backward[CHAIN_TRACE]; /* and left there */
    fsdp_comm_counters before;
} chain;

FSDP_MUST_CHECK fsdp_status chain_open(fsdp_group *group, const fsdp_fully_shard_options *options,
                                       chain *c);
FSDP_MUST_CHECK fsdp_status chain_close(chain *c);
/* Forward and backward of the root, the only micro-step of its step; traces are of it alone. */
FSDP_MUST_CHECK fsdp_status chain_run(chain *c, int step);
/* The a-th of n micro-steps. */
FSDP_MUST_CHECK fsdp_status chain_micro_step(chain *c, int step, int a, int n);
/* Counts of the group since the last call. */
fsdp_comm_counters chain_counts(chain *c);
/* Elements of the parameters of unit i; of all units. */
uint64_t chain_numel(const chain *c, int i);
uint64_t chain_total(const chain *c);
