/* Which save trainer_state.json belongs to: sizes and checksums of the files of model and optimizer
 * beside it, in its field "saved_files". Another program may save into the same folder and leave
 * trainer_state.json as it is, which then says the wrong step.
 *
 * Of a directory of torch.distributed.checkpoint these are .metadata and the checksums of blocks
 * (__<rank>_0.crc32); of a file of torch.save its end is compared, the list of a zip's records,
 * which has the checksum of each. */
#pragma once
#include "src/base/json.h"

/* Add the field for what is in `dir` now. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_tie_put(fsdp_json_node root, const char *dir);
/* FSDP_ERR_FORMAT naming a file that is another one than `root` says; files that are gone are not
 * looked at. Without the field, as earlier versions wrote it, FSDP_ERR_FORMAT if another program
 * wrote .metadata. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_tie_check(fsdp_json_node root, const char *dir);
