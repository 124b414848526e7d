/* The field "saved_files" of trainer_state.json ties trainer_state.json to the other files of the
 * same save. The field contains the sizes and checksums of the model's and the optimizer's files in
 * the same folder. If another program later saves into this folder, it does not update
 * trainer_state.json, whose step is then wrong. The sizes and checksums reveal this.
 *
 * In a folder of torch.distributed.checkpoint, the field lists .metadata and the files with the
 * checksums of blocks (__<rank>_0.crc32). A file written by torch.save is a zip archive. Its
 * checksum covers only its end, where the archive lists the checksum of each record. */
#pragma once
#include "src/base/json.h"

/* Add the field "saved_files" to `root`. It lists the files that are in `dir` now. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_tie_put(fsdp_json_node root, const char *dir);
/* Check the files in `dir` against the list "saved_files" of `root`. Return FSDP_ERR_FORMAT if the
 * size or the checksum of a file differs from that in the list; the message names the file. Files
 * in the list that are missing from `dir` are ignored.
 *
 * In files of earlier versions, `root` does not have the list. In this case, return FSDP_ERR_FORMAT
 * if another program wrote .metadata in `dir`. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_tie_check(fsdp_json_node root, const char *dir);
