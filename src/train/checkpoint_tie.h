/* The field "saved_files" of trainer_state.json says which save the file belongs to: sizes and
 * checksums of the files of model and optimizer in the same folder. Another program may save into
 * the folder and leave trainer_state.json as it is, which then has the wrong step.
 *
 * For a directory of torch.distributed.checkpoint, the files are .metadata and the checksums of
 * blocks (__<rank>_0.crc32). For a file of torch.save, its end is compared: the list of a zip's
 * records, which has the checksum of each. */
#pragma once
#include "src/base/json.h"

/* Add the field for the files now in `dir`. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_tie_put(fsdp_json_node root, const char *dir);
/* FSDP_ERR_FORMAT, naming a file, if it differs from what `root` says. Missing files are ignored.
 * Earlier versions wrote no such field; then FSDP_ERR_FORMAT if another program wrote .metadata. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_tie_check(fsdp_json_node root, const char *dir);
