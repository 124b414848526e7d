/* A small sharded model with an optimizer, whose state goes into checkpoints. */
#pragma once
#include <fsdp/fsdp.h>
#include <fsdp/optim.h>
#include <fsdp/state_dict.h>

typedef enum state_case_optimizer {
    STATE_CASE_ADAMW,
    STATE_CASE_SGD,
    STATE_CASE_ADAFACTOR,
    /* AdamW with states in 8 bits, of a model whose rows are wide enough for them */
    STATE_CASE_ADAMW_8BIT,
    STATE_CASE_ROUNDED, /* AdamW with moments in bfloat16 that are rounded stochastically */
    STATE_CASE_SCHEDULE_FREE
} state_case_optimizer;

typedef struct state_case {
    fsdp_group *group;
    fsdp_device *device;
    fsdp_module *model;
    fsdp_optimizer *optimizer;
    fsdp_parameter_list list;
} state_case;

/* Collective, as all below. options NULL: defaults. */
fsdp_status state_case_open_with(state_case *f, fsdp_group *group, state_case_optimizer kind,
                                 uint64_t seed, const fsdp_fully_shard_options *options);
fsdp_status state_case_open(state_case *f, fsdp_group *group, state_case_optimizer kind,
                            uint64_t seed);
void state_case_close(state_case *f);
/* Train the same steps on any number of ranks: only the loss of rank 0 is used. */
fsdp_status state_case_train(state_case *f, int steps);
/* Get {"model", "optim"}, owned by the caller. */
fsdp_status state_case_get(state_case *f, const fsdp_state_dict_options *options,
                           fsdp_state_dict **all);
fsdp_status state_case_set(state_case *f, const fsdp_state_dict *all,
                           const fsdp_state_dict_options *options);
