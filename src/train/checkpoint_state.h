/* trainer_state.json: the part of a run's state that neither the model nor the optimizer contains.
 */
#pragma once
#include "src/train/trainer_internal.h"

#define FSDP_TRAINER_STATE "trainer_state.json"

/* fsdp_trainer_state_json() returns the current content of trainer_state.json, owned by the caller.
 * fsdp_trainer_state_write() adds the sizes and checksums of the files of model and optimizer that
 * are already in `dir` (checkpoint_tie.h), and writes the content into `dir`. @{ */
FSDP_MUST_CHECK fsdp_status fsdp_trainer_state_json(const fsdp_trainer *t, fsdp_json **state);
FSDP_MUST_CHECK fsdp_status fsdp_trainer_state_write(fsdp_json *state, const char *dir);
/* @} */

/* Return the largest number of steps that the optimizer has counted for any parameter. */
int64_t fsdp_trainer_counted_steps(const fsdp_trainer *t);

/* Which program wrote trainer_state.json. transformers' Trainer writes a file of this name with
 * other content. NONE: there is no file. */
typedef enum fsdp_trainer_state_kind {
    FSDP_TRAINER_STATE_NONE,
    FSDP_TRAINER_STATE_OWN,
    FSDP_TRAINER_STATE_TRANSFORMERS
} fsdp_trainer_state_kind;

typedef struct fsdp_trainer_state_owner {
    fsdp_trainer_state_kind kind;
    int64_t step; /* TRANSFORMERS: its global_step; else -1 */
    double epoch; /* TRANSFORMERS: trained epochs, possibly a fraction; 0: unknown */
} fsdp_trainer_state_owner;

/* Find out which program wrote trainer_state.json in `dir`. FSDP_ERR_FORMAT if neither this program
 * nor transformers' Trainer wrote it. */
FSDP_MUST_CHECK fsdp_status fsdp_trainer_state_find(const char *dir,
                                                    fsdp_trainer_state_owner *owner);
/* Open trainer_state.json in `dir` as *state, owned by the caller. FSDP_ERR_FORMAT if it has a
 * wrong checksum. */
FSDP_MUST_CHECK fsdp_status fsdp_trainer_state_open(const char *dir, fsdp_json **state);
/* Read position, sums, records and results into *t. FSDP_ERR_INVALID, naming both values, if an
 * option or a size that must not change has changed, for example one that determines the rows of
 * the next steps. Other options that differ are printed to t->out. *counted becomes the saved
 * fsdp_trainer_counted_steps(), or -1 if it is unknown. */
FSDP_MUST_CHECK fsdp_status fsdp_trainer_state_read(fsdp_trainer *t, const char *dir,
                                                    int64_t *counted);
