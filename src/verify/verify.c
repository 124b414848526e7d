/* Compares the case in a folder (verify.h): lists the entries of the folder, and compares each one.
 * The name and the content of an entry decide how it is compared. Entries that are inputs, or that
 * are for another number of ranks, are skipped silently. Entries that cannot be compared are
 * reported. */
#include <string.h>

#include <fsdp/dtensor.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/base/str.h"
#include "src/comm/agree.h"
#include "src/verify/verify_case.h"

/* --- names --- */

static bool starts_with(const char *name, const char *start)
{
    return strncmp(name, start, strlen(start)) == 0;
}

/* Return true if the entry is not compared by itself. Most of these entries are inputs, which are
 * read when other entries are compared. */
static bool is_input(const char *name)
{
    static const char *const inputs[] = {"model",
                                         "adapter",
                                         "final_adapter.safetensors",
                                         "inputs.safetensors",
                                         "packed_inputs.safetensors",
                                         "tolerance.json",
                                         "final_params.safetensors",
                                         "params.json",
                                         "optim.safetensors",
                                         "states.safetensors",
                                         "README.md"};
    for (size_t i = 0; i < FSDP_LENGTH(inputs); i++)
        if (strcmp(name, inputs[i]) == 0)
            return true;
    return starts_with(name, "trajectory_inputs_") || fsdp_ends_with(name, "_model") ||
           name[0] == '.';
}

/* --- one entry --- */

static bool is_folder(const fsdp_verify_case *c, const char *name)
{
    char *path = fsdp_verify_path(c, name);
    bool yes = path && fsdp_path_is_directory(path);
    fsdp_free(path);
    return yes;
}

static fsdp_status verify_entry(fsdp_verify_case *c, const char *name)
{
    static const struct {
        const char *name;
        fsdp_status (*verify)(fsdp_verify_case *c);
        bool needs_model;
    } files[] = {
        {"expected.safetensors", fsdp_verify_expected, true},
        {"packed_expected.safetensors", fsdp_verify_packed, true},
        {"config_other_form.json", fsdp_verify_config_form, true},
        {"expected_bf16.json", fsdp_verify_bf16, true},
        {"relative_buckets.json", fsdp_verify_buckets, false},
        {"shards.json", fsdp_verify_shards, false},
        {"optim.json", fsdp_verify_optim, false},
        {"states.json", fsdp_verify_states, false},
        {"clip.safetensors", fsdp_verify_clip, false},
        {"schedules.json", fsdp_verify_schedules, false},
        {"float8.safetensors", fsdp_verify_float8, false},
        {"nf4.safetensors", fsdp_verify_nf4, false},
    };
    for (size_t i = 0; i < FSDP_LENGTH(files); i++)
        if (strcmp(name, files[i].name) == 0)
            return !files[i].needs_model || c->base_model || fsdp_verify_has_model(c, "model", name)
                       ? files[i].verify(c)
                       : FSDP_OK;
    if (starts_with(name, "trajectory_") && fsdp_ends_with(name, ".json"))
        return fsdp_verify_trajectory(c, name);
    if (starts_with(name, "model_") && is_folder(c, name))
        return fsdp_verify_has_model(c, "model", name) ? fsdp_verify_copy(c, name) : FSDP_OK;
    if (starts_with(name, "dcp_step") && is_folder(c, name))
        return fsdp_verify_has_model(c, "model", name) ? fsdp_verify_dcp(c, name) : FSDP_OK;
    fsdp_verify_skipped(c, name, "this version does not support this file");
    return FSDP_OK;
}

/* Set *yes to true if the entry is a JSON file with prompts and generated sequences. */
static fsdp_status is_generation(const fsdp_verify_case *c, const char *name, bool *yes)
{
    *yes = false;
    if (!fsdp_ends_with(name, ".json"))
        return FSDP_OK;
    fsdp_json *doc = NULL;
    fsdp_status status = fsdp_verify_read_json(c, name, &doc);
    if (status == FSDP_OK)
        *yes = fsdp_json_has(fsdp_json_root(doc), "prompts") &&
               fsdp_json_has(fsdp_json_root(doc), "sequences");
    fsdp_json_destroy(doc);
    return status;
}

/* --- shards --- */

static fsdp_status check_shard(fsdp_json_node ranks, int64_t rows, int64_t world,
                               int64_t *differing)
{
    for (int rank = 0; rank < world; rank++) {
        fsdp_json_node entry = fsdp_json_at(ranks, (size_t)rank), shape, offset;
        int64_t want_rows, want_begin, begin, end;
        FSDP_TRY(fsdp_json_get_array(entry, "local_shape", &shape));
        FSDP_TRY(fsdp_json_get_array(entry, "offset", &offset));
        FSDP_TRY(fsdp_json_get_i64(fsdp_json_at(shape, 0), NULL, 0, INT64_MAX, &want_rows));
        FSDP_TRY(fsdp_json_get_i64(fsdp_json_at(offset, 0), NULL, 0, INT64_MAX, &want_begin));
        fsdp_shard_rows(rows, (int)world, rank, &begin, &end);
        *differing += begin != want_begin || end - begin != want_rows;
    }
    return FSDP_OK;
}

fsdp_status fsdp_verify_shards(fsdp_verify_case *c)
{
    fsdp_json *doc = NULL;
    int64_t differing = 0;
    fsdp_status status = fsdp_verify_read_json(c, "shards.json", &doc);
    size_t n = status == FSDP_OK ? fsdp_json_len(fsdp_json_root(doc)) : 0;
    for (size_t i = 0; i < n && status == FSDP_OK; i++) {
        fsdp_json_node entry = fsdp_json_at(fsdp_json_root(doc), i), shape, ranks;
        int64_t rows, world;
        status = fsdp_json_get_i64(entry, "world", 1, 1024, &world);
        if (status == FSDP_OK)
            status = fsdp_json_get_array(entry, "shape", &shape);
        if (status == FSDP_OK)
            status = fsdp_json_get_i64(fsdp_json_at(shape, 0), NULL, 0, INT64_MAX, &rows);
        if (status == FSDP_OK)
            status = fsdp_json_get_array(entry, "ranks", &ranks);
        if (status == FSDP_OK)
            status = check_shard(ranks, rows, world, &differing);
    }
    if (status == FSDP_OK)
        fsdp_verify_compared(c, (double)differing, 0, "differing",
                             "shards.json: rows of each rank");
    fsdp_json_destroy(doc);
    return status;
}

/* --- a folder --- */

/* Return true if the numbers in the file depend on the number of ranks. Such a file can be compared
 * only by a run with the same number of ranks as the run of PyTorch that made the file. */
static bool is_of_a_mesh(const char *name)
{
    return strcmp(name, "expected_bf16.json") == 0 ||
           (starts_with(name, "trajectory_") && fsdp_ends_with(name, ".json"));
}

static fsdp_status verify_supported(fsdp_verify_case *c, const char *name)
{
    bool generation;
    FSDP_TRY(is_generation(c, name, &generation));
    return generation ? fsdp_verify_generation(c, name) : verify_entry(c, name);
}

/* Compare one entry of the case. If the entry is for another number of ranks, do nothing. If
 * comparing it needs something that this library does not support, report the entry as not
 * compared, with the error message as the reason. */
static fsdp_status verify_named(fsdp_verify_case *c, const char *name)
{
    bool of_this_world = true;
    if (is_of_a_mesh(name))
        FSDP_TRY(fsdp_verify_is_of_this_world(c, name, &of_this_world));
    if (!of_this_world)
        return FSDP_OK;
    fsdp_status status = verify_supported(c, name);
    if (status != FSDP_ERR_UNSUPPORTED)
        return status;
    fsdp_verify_skipped(c, name, "%s", fsdp_last_error());
    return FSDP_OK;
}

static fsdp_status verify_entries(fsdp_verify_case *c, char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (is_input(names[i]))
            continue;
        /* fsdp_verify_dcp() reads this file when it compares the folder of the same name */
        if (starts_with(names[i], "dcp_") && fsdp_ends_with(names[i], ".json"))
            continue;
        FSDP_TRY(verify_named(c, names[i]));
    }
    return FSDP_OK;
}

static fsdp_status open_tolerance(fsdp_verify_case *c)
{
    return fsdp_verify_has_file(c, "tolerance.json")
               ? fsdp_verify_read_json(c, "tolerance.json", &c->tolerance)
               : FSDP_OK;
}

/* Return true if the folder is a collection of cases. A collection contains folders, but no model/
 * and no JSON or safetensors files. */
static bool is_collection(const char *path, char *const *names, size_t count)
{
    size_t folders = 0;
    for (size_t i = 0; i < count; i++) {
        char *entry = fsdp_path_join(path, names[i]);
        bool folder = entry && fsdp_path_is_directory(entry);
        fsdp_free(entry);
        if (strcmp(names[i], "model") == 0 ||
            (!folder &&
             (fsdp_ends_with(names[i], ".json") || fsdp_ends_with(names[i], ".safetensors"))))
            return false;
        folders += folder;
    }
    return folders > 0;
}

static fsdp_status verify_one(fsdp_verify_case *c, char *const *names, size_t count)
{
    fsdp_status status = fsdp_agree(c->group, open_tolerance(c));
    if (status == FSDP_OK)
        status = fsdp_agree(c->group, fsdp_verify_find_base(c));
    if (status == FSDP_OK)
        status = verify_entries(c, names, count);
    fsdp_json_destroy(c->tolerance);
    fsdp_free(c->base_model);
    fsdp_free(c->base_inputs);
    return status;
}

static fsdp_status verify_folder(fsdp_verify_case *c, fsdp_verify_counts *counts);

static fsdp_status verify_collection(const fsdp_verify_case *outer, char *const *names,
                                     size_t count, fsdp_verify_counts *counts)
{
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < count && status == FSDP_OK; i++) {
        char *path = fsdp_path_join(outer->path, names[i]);
        status = path ? FSDP_OK : FSDP_ERR_NOMEM;
        if (path && fsdp_path_is_directory(path)) {
            fsdp_verify_case inner = *outer;
            inner.path = path;
            inner.name = fsdp_path_name(path);
            status = verify_folder(&inner, counts);
        }
        fsdp_free(path);
    }
    return status;
}

/* On every rank, add rank 0's counts of a case to *counts. The counts of the other ranks are
 * ignored, because only rank 0's results are reported. */
static fsdp_status share_counts(const fsdp_verify_case *c, fsdp_verify_counts *counts)
{
    fsdp_verify_counts mine = c->counts;
    if (c->world_size > 1)
        FSDP_TRY(fsdp_broadcast(c->group, &mine, sizeof mine, 0));
    counts->compared += mine.compared;
    counts->failed += mine.failed;
    counts->not_compared += mine.not_compared;
    return FSDP_OK;
}

static fsdp_status verify_folder(fsdp_verify_case *c, fsdp_verify_counts *counts)
{
    char **names = NULL;
    size_t count = 0;
    FSDP_TRY(fsdp_agree(c->group, fsdp_directory_list(c->path, &names, &count)));
    fsdp_status status;
    if (is_collection(c->path, names, count)) {
        status = verify_collection(c, names, count, counts);
    } else {
        status = verify_one(c, names, count);
        if (status == FSDP_OK)
            status = share_counts(c, counts);
    }
    fsdp_free(names);
    return status;
}

fsdp_status fsdp_verify_folder(const char *path, fsdp_group *group, fsdp_device *device,
                               fsdp_verify_report_fn *report, void *arg, fsdp_verify_counts *counts)
{
    fsdp_verify_mesh hybrid = {0};
    fsdp_verify_case c = {.path = path,
                          .name = fsdp_path_name(path),
                          .group = group,
                          .device = device,
                          .rank = fsdp_group_rank(group),
                          .world_size = fsdp_group_world_size(group),
                          .hybrid = &hybrid,
                          .report = report,
                          .report_arg = arg};
    fsdp_status status = verify_folder(&c, counts);
    fsdp_device_mesh_destroy(hybrid.mesh);
    return status;
}
