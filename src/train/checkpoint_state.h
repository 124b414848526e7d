/* trainer_state.json: the state of a run that is neither model nor optimizer. */
#pragma once
#include "src/train/trainer_internal.h"

#define FSDP_TRAINER_STATE "trainer_state.json"

/* The first returns the current content, owned by the caller. The second writes it to
 * `dir`/trainer_state.json, with sizes and checksums of the files of model and optimizer that are
 * already in `dir` (checkpoint_tie.h). @{ */
FSDP_MUST_CHECK fsdp_status fsdp_trainer_state_json(const fsdp_trainer *t, fsdp_json **state);
FSDP_MUST_CHECK fsdp_status fsdp_trainer_state_write(fsdp_json *state, const char *dir);
/* @} */

/* The largest number of steps that the optimizer has counted for a parameter. */
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
    double epoch; /* TRANSFORMERS: trained epochs with their fraction; 0: unknown */
} fsdp_trainer_state_owner;

/* Which program wrote the file in `dir`? FSDP_ERR_FORMAT if neither did. */
FSDP_MUST_CHECK fsdp_status fsdp_trainer_state_find(const char *dir,
                                                    fsdp_trainer_state_owner *owner);
/* Opens the document, owned by the caller. FSDP_ERR_FORMAT if its content does not match its
 * checksum, which covers the text without the checksum itself. */
FSDP_MUST_CHECK fsdp_status fsdp_trainer_state_open(const char *dir, fsdp_json **state);
/* Read position, sums, records and results into *t. FSDP_ERR_INVALID, naming both values, if this
 * run would take other rows in its next steps. Other options that differ are listed to t->out.
 * *counted is the saved fsdp_trainer_counted_steps(), or -1 if unknown. */
FSDP_MUST_CHECK fsdp_status fsdp_trainer_state_read(fsdp_trainer *t, const char *dir,
                                                    int64_t *counted);
