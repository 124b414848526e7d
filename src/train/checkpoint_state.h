/* trainer_state.json: the part of a run's state that neither the model nor the optimizer contains.
 */
#pragma once
#include "src/train/trainer_internal.h"

#define FSDP_TRAINER_STATE "trainer_state.json"

/* fsdp_trainer_state_json() returns the current content of trainer_state.json, owned by the caller.
 * fsdp_trainer_state_write() writes the content into `dir`. It first adds the sizes and checksums
 * of the model's and the optimizer's files that are already in `dir` (checkpoint_tie.h). @{ */
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
    int64_t step; /* TRANSFORMERS: the file's global_step; otherwise -1 */
    double epoch; /* TRANSFORMERS: number of trained epochs, may be fractional; 0: unknown */
} fsdp_trainer_state_owner;

/* Find out which program wrote trainer_state.json in `dir`. Return FSDP_ERR_FORMAT if neither this
 * program nor transformers' Trainer wrote it. */
FSDP_MUST_CHECK fsdp_status fsdp_trainer_state_find(const char *dir,
                                                    fsdp_trainer_state_owner *owner);
/* Open trainer_state.json in `dir` as *state, owned by the caller. Return FSDP_ERR_FORMAT if its
 * checksum is wrong. */
FSDP_MUST_CHECK fsdp_status fsdp_trainer_state_open(const char *dir, fsdp_json **state);
/* Read the position in the data, the sums, the records and the results into *t. Return
 * FSDP_ERR_INVALID if an option or a size has changed that must stay the same, for example one that
 * determines the rows of the next steps; the message contains both values. Other options that
 * differ are printed to t->out. *counted becomes the saved value of fsdp_trainer_counted_steps(),
 * or -1 if it is unknown. */
FSDP_MUST_CHECK fsdp_status fsdp_trainer_state_read(fsdp_trainer *t, const char *dir,
                                                    int64_t *counted);
