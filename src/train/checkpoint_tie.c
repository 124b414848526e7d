/* See checkpoint_tie.h. */
#include "src/train/checkpoint_tie.h"

#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/crc32.h"
#include "src/base/io.h"
#include "src/base/str.h"
#include "src/comm/agree.h"
#include "src/dcp/dcp_metadata.h"
#include "src/train/checkpoint_state.h"

enum {
    /* the checksum of a file written by torch.save covers only its last END_BYTES bytes */
    END_BYTES = 1 << 16,
    MAX_NAME = 64
};

static const char FIELD[] = "saved_files";

typedef struct identity {
    int64_t bytes, crc32;
} identity;

static const char *const names[] = {".metadata",
                                    "model_state_dict.pt",
                                    "optim_state_dict.pt",
                                    "pytorch_model_fsdp_0/.metadata",
                                    "pytorch_model_0/.metadata",
                                    "optimizer_0/.metadata",
                                    "pytorch_model_fsdp.bin",
                                    "pytorch_model.bin",
                                    "optimizer.bin"};

/* Files that each rank writes. Each name consists of `begin`, the rank and `end`. Ranks 0, 1, 2 and
 * so on are tried, until a file does not exist. */
static const struct {
    const char *begin, *end;
} of_ranks[] = {{"local_state_dict_rank", ".pt"},
                {"__", "_0.crc32"},
                {"pytorch_model_fsdp_0/__", "_0.crc32"},
                {"pytorch_model_0/__", "_0.crc32"},
                {"optimizer_0/__", "_0.crc32"}};

static fsdp_status identify(const char *path, identity *id)
{
    fsdp_mapping map = {0};
    fsdp_crc32_table table;
    FSDP_TRY(fsdp_file_map(path, &map));
    /* Leave out the last bytes of the file, which are the CRC of the bytes before them. If the last
     * bytes were included, the checksum would be the same for all files: the CRC of data followed
     * by its own CRC is a constant. */
    const size_t own = fsdp_ends_with(path, ".crc32") ? sizeof(uint32_t) : 0;
    const size_t bytes = map.bytes > own ? map.bytes - own : 0;
    const bool whole = bytes <= END_BYTES || fsdp_ends_with(path, ".metadata") || own;
    const size_t n = whole ? bytes : END_BYTES;
    fsdp_crc32_init(&table);
    id->bytes = (int64_t)map.bytes;
    id->crc32 = n ? fsdp_crc32(&table, 0, (const char *)map.data + (bytes - n), n) : 0;
    fsdp_file_unmap(&map);
    return FSDP_OK;
}

static void put_identity(fsdp_json_node list, const char *name, const identity *id)
{
    fsdp_json_node to = fsdp_json_append_object(list);
    fsdp_json_set_str(to, "file", name);
    fsdp_json_set_i64(to, "bytes", id->bytes);
    fsdp_json_set_i64(to, "crc32", id->crc32);
}

/* Add the name, size and checksum of the file `name` in `dir` to `list`. If the file does not
 * exist, add nothing. Set *there to whether the file exists. */
static fsdp_status put_file(fsdp_json_node list, const char *dir, const char *name, bool *there)
{
    identity id = {0};
    char *path = fsdp_path_join(dir, name);
    if (!path)
        return FSDP_ERR_NOMEM;
    *there = fsdp_path_is_file(path);
    fsdp_status status = *there ? identify(path, &id) : FSDP_OK;
    fsdp_free(path);
    if (status != FSDP_OK || !*there)
        return status;
    put_identity(list, name, &id);
    return FSDP_OK;
}

static fsdp_status put_ranks(fsdp_json_node list, const char *dir, size_t kind)
{
    bool there = true;
    for (int rank = 0; there; rank++) {
        char name[MAX_NAME];
        snprintf(name, sizeof name, "%s%d%s", of_ranks[kind].begin, rank, of_ranks[kind].end);
        FSDP_TRY(put_file(list, dir, name, &there));
    }
    return FSDP_OK;
}

fsdp_status fsdp_checkpoint_tie_put(fsdp_json_node root, const char *dir)
{
    fsdp_json_node list = fsdp_json_set_array(root, FIELD);
    bool there;
    for (size_t i = 0; i < FSDP_LENGTH(names); i++)
        FSDP_TRY(put_file(list, dir, names[i], &there));
    for (size_t i = 0; i < FSDP_LENGTH(of_ranks); i++)
        FSDP_TRY(put_ranks(list, dir, i));
    return FSDP_OK;
}

/* ---- hosts that have disks of their own ---- */

/* Write the name of the checksum file of `rank`. Hosts with disks of their own save only
 * checkpoints of torch.distributed.checkpoint, so no other names are possible. */
static void sums_name(int rank, char name[MAX_NAME])
{
    snprintf(name, MAX_NAME, "__%d_0.crc32", rank);
}

static fsdp_status identify_own(const char *dir, int rank, identity *id)
{
    char name[MAX_NAME];
    sums_name(rank, name);
    char *path = fsdp_path_join(dir, name);
    fsdp_status status = path ? identify(path, id) : FSDP_ERR_NOMEM;
    fsdp_free(path);
    return status;
}

static fsdp_status put_all(fsdp_json_node root, const char *dir, const identity *all, int ranks)
{
    fsdp_json_node list = fsdp_json_set_array(root, FIELD);
    bool there;
    FSDP_TRY(put_file(list, dir, names[0], &there));
    for (int r = 0; r < ranks; r++) {
        char name[MAX_NAME];
        sums_name(r, name);
        put_identity(list, name, &all[r]);
    }
    return FSDP_OK;
}

fsdp_status fsdp_checkpoint_tie_put_on_disks(fsdp_json_node root, const char *dir,
                                             fsdp_group *group)
{
    const int rank = fsdp_group_rank(group), ranks = fsdp_group_world_size(group);
    identity own = {0}, *all = fsdp_calloc((size_t)ranks, sizeof *all);
    fsdp_status status = all ? identify_own(dir, rank, &own) : FSDP_ERR_NOMEM;
    status = fsdp_agree_gather(group, status, &own, sizeof own, all);
    if (status == FSDP_OK && rank == 0)
        status = put_all(root, dir, all, ranks);
    fsdp_free(all);
    return status;
}

/* ---- checking ---- */

static fsdp_status check_file(const char *dir, const char *name, const identity *then)
{
    identity now = {0};
    char *path = fsdp_path_join(dir, name);
    if (!path)
        return FSDP_ERR_NOMEM;
    fsdp_status status = FSDP_OK;
    if (fsdp_path_is_file(path)) {
        status = identify(path, &now);
        if (status == FSDP_OK && (now.bytes != then->bytes || now.crc32 != then->crc32))
            status = fsdp_error(FSDP_ERR_FORMAT,
                                "%s/" FSDP_TRAINER_STATE
                                " belongs to another save than %s in the same folder, which has "
                                "%lld bytes and checksum %lld instead of %lld and %lld: another "
                                "program saved into this folder, or the file is damaged. To resume "
                                "from the other files, remove " FSDP_TRAINER_STATE,
                                dir, name, (long long)now.bytes, (long long)now.crc32,
                                (long long)then->bytes, (long long)then->crc32);
    }
    fsdp_free(path);
    return status;
}

static fsdp_status check_writer(const char *dir)
{
    fsdp_mapping map = {0};
    fsdp_dcp_metadata *metadata = NULL;
    char *path = fsdp_path_join(dir, ".metadata");
    if (!path)
        return FSDP_ERR_NOMEM;
    fsdp_status status = FSDP_OK;
    bool own = true;
    if (fsdp_path_is_file(path)) {
        status = fsdp_file_map(path, &map);
        if (status == FSDP_OK)
            status = fsdp_dcp_metadata_create(path, map.data, map.bytes, &metadata);
        own = status != FSDP_OK || fsdp_dcp_metadata_is_own(metadata);
        fsdp_dcp_metadata_destroy(metadata);
        fsdp_file_unmap(&map);
    }
    fsdp_free(path);
    if (status != FSDP_OK || own)
        return status;
    return fsdp_error(
        FSDP_ERR_FORMAT,
        "%s/" FSDP_TRAINER_STATE
        " belongs to another save than .metadata in the same folder: another program saved into "
        "this folder. To resume from the other files, remove " FSDP_TRAINER_STATE,
        dir);
}

fsdp_status fsdp_checkpoint_tie_check(fsdp_json_node root, const char *dir)
{
    fsdp_json_node list;
    if (!fsdp_json_has(root, FIELD))
        return check_writer(dir);
    FSDP_TRY(fsdp_json_get_array(root, FIELD, &list));
    for (size_t i = 0; i < fsdp_json_len(list); i++) {
        fsdp_json_node file = fsdp_json_at(list, i);
        const char *name;
        identity then;
        FSDP_TRY(fsdp_json_get_str(file, "file", &name));
        FSDP_TRY(fsdp_json_get_i64(file, "bytes", 0, INT64_MAX, &then.bytes));
        FSDP_TRY(fsdp_json_get_i64(file, "crc32", 0, UINT32_MAX, &then.crc32));
        FSDP_TRY(check_file(dir, name, &then));
    }
    return FSDP_OK;
}
