/* The field "saved_files" of trainer_state.json says which save the file belongs to. It contains
 * the sizes and checksums of the model's and the optimizer's files in the same folder. If another
 * program later saves into this folder, it does not update trainer_state.json, so the step in it
 * becomes wrong. The field reveals this.
 *
 * In a directory of torch.distributed.checkpoint, the listed files are .metadata and the checksums
 * of blocks (__<rank>_0.crc32). For a file of torch.save, the checksum covers the end of the file:
 * the list of a zip's records, which contains the checksum of each record. */
#pragma once
#include "src/base/json.h"

/* Add the field "saved_files" for the files that are in `dir` now. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_tie_put(fsdp_json_node root, const char *dir);
/* Return FSDP_ERR_FORMAT if a file in `dir` differs from the field in `root`; the message names the
 * file. Missing files are ignored. Earlier versions did not write the field. If it is missing,
 * return FSDP_ERR_FORMAT if another program wrote .metadata. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_tie_check(fsdp_json_node root, const char *dir);
