/* The field "saved_files" of trainer_state.json identifies the save that trainer_state.json belongs
 * to, by the sizes and checksums of the files of model and optimizer in the same folder. Another
 * program that later saves into this folder leaves trainer_state.json unchanged, so that the step
 * in it is wrong. The field reveals this.
 *
 * In a directory of torch.distributed.checkpoint, the listed files are .metadata and the checksums
 * of blocks (__<rank>_0.crc32). For a file of torch.save, the checksum covers the end of the file:
 * the list of a zip's records, which contains the checksum of each record. */
#pragma once
#include "src/base/json.h"

/* Add the field "saved_files" for the files that are in `dir` now. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_tie_put(fsdp_json_node root, const char *dir);
/* Return FSDP_ERR_FORMAT, naming the file, if a file in `dir` differs from the field in `root`.
 * Missing files are ignored. Without the field, which earlier versions did not write, return
 * FSDP_ERR_FORMAT if another program wrote .metadata. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_tie_check(fsdp_json_node root, const char *dir);
