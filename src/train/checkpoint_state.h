/* trainer_state.json: what of a run is neither model nor optimizer. */
#pragma once
#include "src/train/trainer_internal.h"

#define FSDP_TRAINER_STATE "trainer_state.json"

/* What is in it now, the caller's; and write that to `dir`/trainer_state.json. @{ */
FSDP_MUST_CHECK fsdp_status fsdp_trainer_state_json(const fsdp_trainer *t, fsdp_json **state);
FSDP_MUST_CHECK fsdp_status fsdp_trainer_state_write(const fsdp_json *state, const char *dir);
/* @} */
/* The document, the caller's. FSDP_ERR_FORMAT if its content has not its checksum, which is that of
 * the text without it. */
FSDP_MUST_CHECK fsdp_status fsdp_trainer_state_open(const char *dir, fsdp_json **state);
/* Read it: position, sums, records and results go into *t. FSDP_ERR_INVALID, naming both values, if
 * this run would take other rows in its next steps; other options that differ are listed to
 * t->out. */
FSDP_MUST_CHECK fsdp_status fsdp_trainer_state_read(fsdp_trainer *t, const char *dir);
