/* trainer_state.json: what of a run is neither model nor optimizer. */
#pragma once
#include "src/train/trainer_internal.h"

#define FSDP_TRAINER_STATE "trainer_state.json"

/* What is in it now, the caller's; and write that to `dir`/trainer_state.json, with what identifies
 * the files of model and optimizer that are in `dir` already (checkpoint_tie.h). @{ */
FSDP_MUST_CHECK fsdp_status fsdp_trainer_state_json(const fsdp_trainer *t, fsdp_json **state);
FSDP_MUST_CHECK fsdp_status fsdp_trainer_state_write(fsdp_json *state, const char *dir);
/* @} */

/* The most steps that the optimizer counted for a parameter. */
int64_t fsdp_trainer_counted_steps(const fsdp_trainer *t);

/* transformers' Trainer writes a file of the same name, with other content. */
typedef enum fsdp_trainer_state_kind {
    FSDP_TRAINER_STATE_NONE,
    FSDP_TRAINER_STATE_OWN,
    FSDP_TRAINER_STATE_TRANSFORMERS
} fsdp_trainer_state_kind;

typedef struct fsdp_trainer_state_owner {
    fsdp_trainer_state_kind kind;
    int64_t step; /* TRANSFORMERS: its global_step; else -1 */
    double epoch; /* TRANSFORMERS: epochs that were trained, with their fraction; 0: unknown */
} fsdp_trainer_state_owner;

/* Whose is the one in `dir`? FSDP_ERR_FORMAT if it is neither. */
FSDP_MUST_CHECK fsdp_status fsdp_trainer_state_find(const char *dir,
                                                    fsdp_trainer_state_owner *owner);
/* The document, the caller's. FSDP_ERR_FORMAT if its content has not its checksum, which is that of
 * the text without it. */
FSDP_MUST_CHECK fsdp_status fsdp_trainer_state_open(const char *dir, fsdp_json **state);
/* Read it: position, sums, records and results go into *t. FSDP_ERR_INVALID, naming both values, if
 * this run would take other rows in its next steps; other options that differ are listed to
 * t->out. *counted: what fsdp_trainer_counted_steps() was; -1: unknown. */
FSDP_MUST_CHECK fsdp_status fsdp_trainer_state_read(fsdp_trainer *t, const char *dir,
                                                    int64_t *counted);
