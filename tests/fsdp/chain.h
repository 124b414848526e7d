/* A root with five units in a row, and a trace of what is gathered at each moment of a step: for
 * the tests of prefetching and of the controls. */
#pragma once
#include "src/comm/comm.h"
#include "tests/fsdp/tree.h"

enum {
    CHAIN_BLOCKS = 5,
    CHAIN_UNITS = CHAIN_BLOCKS + 1,
    CHAIN_TRACE = 128
};

/* Each trace is a line of text such as "a:USSSS b:SUSSS ...". An entry names a block, then gives
 * the state of every block at that moment: S (sharded), G (gathering), U (unsharded), H (hidden) or
 * P (secondary). */
typedef struct chain {
    trainee m;
    fsdp_module *units[CHAIN_UNITS]; /* the blocks, then the root */
    struct chain_watch {
        fsdp_region_hooks hooks;
        struct chain *chain;
        char name;
    } inside[CHAIN_BLOCKS], around[CHAIN_BLOCKS];
    char forward[CHAIN_TRACE];        /* when forward enters a block */
    char backward[CHAIN_TRACE];       /* when backward enters a block */
    char after_backward[CHAIN_TRACE]; /* when backward has left a block */
    fsdp_comm_counters before;
} chain;

FSDP_MUST_CHECK fsdp_status chain_open(fsdp_group *group, const fsdp_fully_shard_options *options,
                                       chain *c);
FSDP_MUST_CHECK fsdp_status chain_close(chain *c);
/* Forward and backward of the root, the only micro-step of its step. Clears the traces first. */
FSDP_MUST_CHECK fsdp_status chain_run(chain *c, int step);
/* Micro-step a of n. */
FSDP_MUST_CHECK fsdp_status chain_micro_step(chain *c, int step, int a, int n);
/* Counts of the group since the last call. */
fsdp_comm_counters chain_counts(chain *c);
/* Elements of the parameters of unit i, and of all units. */
uint64_t chain_numel(const chain *c, int i);
uint64_t chain_total(const chain *c);
