/* The field "saved_files" of trainer_state.json shows whether the other files in the folder are
 * from the same save as trainer_state.json. The field contains the sizes and checksums of the
 * model's and the optimizer's files. Another program that later saves into this folder does not
 * update trainer_state.json, so the step in this file is wrong. In this case the sizes and
 * checksums do not match.
 *
 * In a folder of torch.distributed.checkpoint, the field lists .metadata and the files with the
 * checksums of blocks (__<rank>_0.crc32). For a file written by torch.save, which is a zip archive,
 * the checksum in the field covers only the end of the file, where the archive lists the checksums
 * of all its records. */
#pragma once
#include <fsdp/comm.h>

#include "src/base/json.h"

/* Add the field "saved_files" to `root`. It lists the files that are in `dir` now. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_tie_put(fsdp_json_node root, const char *dir);
/* Used instead of fsdp_checkpoint_tie_put() if hosts have disks of their own. In this case, `dir`
 * contains only the files that are on this rank's disk. `root` is used only on rank 0.
 * Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_tie_put_on_disks(fsdp_json_node root, const char *dir,
                                                             fsdp_group *group);
/* Check the files in `dir` against the list "saved_files" of `root`. Return FSDP_ERR_FORMAT if the
 * size or the checksum of a file differs from that in the list; the message names the file. Files
 * in the list that are missing from `dir` are ignored.
 *
 * In files of earlier versions, `root` does not have the list. In this case, return FSDP_ERR_FORMAT
 * if another program wrote .metadata in `dir`. */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_tie_check(fsdp_json_node root, const char *dir);
