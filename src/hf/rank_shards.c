/* See rank_shards.h. */
#include "src/hf/rank_shards.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/base/str.h"

bool fsdp_shard_is_name(const char *name)
{
    const size_t n = sizeof FSDP_SHARD_PREFIX - 1;
    return strncmp(name, FSDP_SHARD_PREFIX, n) == 0 && strchr("0123456789", name[n]) && name[n] &&
           fsdp_ends_with(name, ".safetensors");
}

static size_t count_shards(const char *dir)
{
    char **names;
    size_t n, count = 0;
    if (!fsdp_path_is_directory(dir) || fsdp_directory_list(dir, &names, &n) != FSDP_OK)
        return 0;
    for (size_t i = 0; i < n; i++)
        count += fsdp_shard_is_name(names[i]);
    fsdp_free(names);
    return count;
}

bool fsdp_shard_is_folder(const char *dir)
{
    return count_shards(dir) > 0;
}

fsdp_status fsdp_shard_read_info(const fsdp_safetensors *file, const char *path, fsdp_json **info)
{
    const char *text = fsdp_safetensors_metadata(file, "DCP_SHARDING_INFO");
    *info = NULL;
    if (!text)
        return FSDP_OK;
    char *name = fsdp_strdup_printf("%s: DCP_SHARDING_INFO", path);
    fsdp_status status = name ? fsdp_json_parse(name, 1, text, strlen(text), info) : FSDP_ERR_NOMEM;
    fsdp_free(name);
    return status;
}

/* Return true if DCP_SHARDING_INFO, `info`, lists a part that does not begin at the first element
 * of its tensor. */
static bool has_offset(fsdp_json *info)
{
    fsdp_json_node root = fsdp_json_root(info);
    for (fsdp_json_node v = fsdp_json_first(root); v.value; v = fsdp_json_next(v)) {
        fsdp_json_node offsets = fsdp_json_find(v, "saved_offsets");
        for (size_t d = 0; d < fsdp_json_len(offsets); d++) {
            int64_t offset;
            if (fsdp_json_get_i64(fsdp_json_at(offsets, d), NULL, INT64_MIN, INT64_MAX, &offset) !=
                    FSDP_OK ||
                offset != 0)
                return true;
        }
    }
    return false;
}

static bool has_siblings(const char *path)
{
    char *dir = fsdp_path_parent(path);
    const bool has = dir && fsdp_shard_is_name(fsdp_path_name(path)) && count_shards(dir) > 1;
    fsdp_free(dir);
    return has;
}

fsdp_status fsdp_shard_refuse(const fsdp_safetensors *file, const char *path)
{
    fsdp_json *info;
    FSDP_TRY(fsdp_shard_read_info(file, path, &info));
    const bool is_part = info && (has_offset(info) || has_siblings(path));
    fsdp_json_destroy(info);
    if (!is_part)
        return FSDP_OK;
    char *dir = fsdp_path_parent(path);
    if (!dir)
        return FSDP_ERR_NOMEM;
    fsdp_status status = fsdp_error(
        FSDP_ERR_UNSUPPORTED,
        "%s: one rank's part of a model, as HuggingFaceStorageWriter of PyTorch writes "
        "it without consolidation; the checkpoint is its folder. Make a model of it: fsdp "
        "checkpoint convert %s NEW_DIR, or in PyTorch consolidate_safetensors_files()",
        path, dir);
    fsdp_free(dir);
    return status;
}

fsdp_status fsdp_shard_refuse_folder(const char *dir)
{
    if (!fsdp_shard_is_folder(dir))
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID,
                      "%s: a file of each rank, as HuggingFaceStorageWriter of PyTorch writes them "
                      "without consolidation, not the folder of a model. Make one of it: fsdp "
                      "checkpoint convert %s NEW_DIR --model MODEL, or in PyTorch "
                      "consolidate_safetensors_files()",
                      dir, dir);
}
