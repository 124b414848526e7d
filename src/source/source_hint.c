/* Makes error messages for a path that is not a checkpoint. Such a path may be one file of a
 * checkpoint, or a folder that contains checkpoints. */
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/hf/folder_kind.h"
#include "src/source/parts.h"
#include "src/source/source_internal.h"

enum {
    SHOWN_PARTS = 3
};

/* Names of the folders in which Accelerate saves sharded models and optimizers. */
static const char *const accelerate[] = {"pytorch_model_fsdp_0", "pytorch_model_0", "optimizer_0"};

fsdp_status fsdp_source_check_file(const char *path)
{
    const char *name = fsdp_path_name(path);
    if (strcmp(name, ".metadata") != 0 && !fsdp_ends_with(name, ".distcp") &&
        !fsdp_ends_with(name, ".crc32"))
        return FSDP_OK;
    char *folder = fsdp_path_parent(path);
    if (!folder)
        return FSDP_ERR_NOMEM;
    fsdp_status status =
        fsdp_error(FSDP_ERR_INVALID,
                   "%s: one file of a checkpoint of torch.distributed.checkpoint, which is the "
                   "folder: %s",
                   path, folder);
    fsdp_free(folder);
    return status;
}

static fsdp_status refuse_around(const char *path, const fsdp_parts *parts)
{
    fsdp_str text = {0};
    for (size_t i = 0; i < parts->n && i < SHOWN_PARTS; i++)
        fsdp_str_printf(&text, "%s%s", i ? ", " : "", parts->paths[i]);
    char *names = fsdp_str_take(&text);
    if (!names)
        return FSDP_ERR_NOMEM;
    fsdp_status status =
        fsdp_error(FSDP_ERR_INVALID, "%s: no checkpoint, but a folder around %zu; take one: %s%s",
                   path, parts->n, names, parts->n > SHOWN_PARTS ? ", ..." : "");
    fsdp_free(names);
    return status;
}

/* Return an error if `path` contains one of the folders named in `accelerate`. The caller has
 * already searched `path` for checkpoints and found none, so such a folder contains no .metadata.
 * This means that the save into this folder was never completed. */
static fsdp_status refuse_begun(const char *path)
{
    for (size_t i = 0; i < FSDP_LENGTH(accelerate); i++) {
        char *part = fsdp_path_join(path, accelerate[i]);
        if (!part)
            return FSDP_ERR_NOMEM;
        fsdp_status status =
            !fsdp_path_is_directory(part)
                ? FSDP_OK
                : fsdp_error(FSDP_ERR_NOT_FOUND,
                             "%s: no .metadata there: a checkpoint that was never completed", part);
        fsdp_free(part);
        FSDP_TRY(status);
    }
    return FSDP_OK;
}

fsdp_status fsdp_source_refuse_folder(const char *path)
{
    fsdp_parts parts;
    FSDP_TRY(fsdp_folder_explain_foreign(path));
    fsdp_status status = fsdp_parts_find(path, &parts);
    if (status == FSDP_OK && !fsdp_parts_is_path_itself(&parts, path))
        status = refuse_around(path, &parts);
    fsdp_parts_fini(&parts);
    FSDP_TRY(status);
    FSDP_TRY(refuse_begun(path));
    return fsdp_error(FSDP_ERR_NOT_FOUND,
                      "%s: no checkpoint there: neither .metadata of torch.distributed.checkpoint, "
                      "pytorch_model_fsdp_0 or optimizer_0 of Accelerate, nor model.safetensors or "
                      "pytorch_model.bin, whole or by an index, of Hugging Face",
                      path);
}
