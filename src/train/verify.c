/* verify: what a folder holds decides what is compared. Every entry of the folder is either an
 * input, compared, of another world size, or reported as not compared. */
#include <string.h>

#include <fsdp/dtensor.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/comm/agree.h"
#include "src/train/verify_case.h"

/* --- names --- */

static bool starts_with(const char *name, const char *start)
{
    return strncmp(name, start, strlen(start)) == 0;
}

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

/* Read by others, or said by others. */
static bool is_input(const char *name)
{
    static const char *const inputs[] = {
        "model",          "inputs.safetensors",       "packed_inputs.safetensors",
        "tolerance.json", "final_params.safetensors", "README.md"};
    for (size_t i = 0; i < FSDP_LENGTH(inputs); i++)
        if (strcmp(name, inputs[i]) == 0)
            return true;
    return starts_with(name, "trajectory_inputs_") || ends_with(name, "_model") || name[0] == '.';
}

/* --- one entry --- */

/* The model_type of `dir`/config.json, the caller's; NULL if there is none. */
static char *model_type_of(const char *dir)
{
    char *path = fsdp_path_join(dir, "config.json"), *type = NULL;
    fsdp_json *doc = NULL;
    const char *name = NULL;
    if (path && fsdp_path_is_file(path) && fsdp_json_read(path, &doc) == FSDP_OK &&
        fsdp_json_opt_str(fsdp_json_root(doc), "model_type", NULL, &name) == FSDP_OK && name)
        type = fsdp_strdup(name);
    fsdp_json_destroy(doc);
    fsdp_free(path);
    return type;
}

static const char *reason_not_compared(const char *name)
{
    if (starts_with(name, "dcp_"))
        return "reading DCP checkpoints comes with a later version";
    if (starts_with(name, "packed_"))
        return "packed documents come with the causal models of a later version";
    if (starts_with(name, "optim.") || starts_with(name, "clip.") ||
        starts_with(name, "schedules."))
        return "optimizers by themselves come with a later version; trajectories run them";
    return "this version does not know such a file";
}

static fsdp_status verify_entry(fsdp_verify_case *c, const char *name)
{
    if (strcmp(name, "expected.safetensors") == 0)
        return fsdp_verify_expected(c);
    if (strcmp(name, "config_other_form.json") == 0)
        return fsdp_verify_config_form(c);
    if (strcmp(name, "relative_buckets.json") == 0)
        return fsdp_verify_buckets(c);
    if (strcmp(name, "expected_bf16.json") == 0)
        return fsdp_verify_bf16(c);
    if (strcmp(name, "shards.json") == 0)
        return fsdp_verify_shards(c);
    if (starts_with(name, "trajectory_") && ends_with(name, ".json"))
        return fsdp_verify_trajectory(c, name);
    fsdp_verify_skipped(c, name, "%s", reason_not_compared(name));
    return FSDP_OK;
}

/* A folder of prompts: files of model, prompts and sequences. */
static fsdp_status is_generation(const fsdp_verify_case *c, const char *name, bool *yes)
{
    *yes = false;
    if (!ends_with(name, ".json"))
        return FSDP_OK;
    char *path = fsdp_verify_path(c, name);
    fsdp_json *doc = NULL;
    fsdp_status status = path ? fsdp_json_read(path, &doc) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        *yes = fsdp_json_has(fsdp_json_root(doc), "prompts") &&
               fsdp_json_has(fsdp_json_root(doc), "sequences");
    fsdp_json_destroy(doc);
    fsdp_free(path);
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
    char *path = fsdp_verify_path(c, "shards.json");
    fsdp_json *doc = NULL;
    int64_t differing = 0;
    fsdp_status status = path ? fsdp_json_read(path, &doc) : FSDP_ERR_NOMEM;
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
    fsdp_free(path);
    return status;
}

/* --- a folder --- */

/* Was it made by ranks, whose number must be this one? */
static bool is_of_a_mesh(const char *name)
{
    return strcmp(name, "expected_bf16.json") == 0 ||
           (starts_with(name, "trajectory_") && ends_with(name, ".json"));
}

static bool needs_model(const char *name)
{
    return is_of_a_mesh(name) || strcmp(name, "expected.safetensors") == 0 ||
           strcmp(name, "config_other_form.json") == 0;
}

/* `type` is the model's, NULL if the folder has none. */
static fsdp_status verify_named(fsdp_verify_case *c, const char *name, const char *type)
{
    bool generation, of_this_world = true;
    if (is_of_a_mesh(name))
        FSDP_TRY(fsdp_verify_is_of_this_world(c, name, &of_this_world));
    if (!of_this_world)
        return FSDP_OK;
    if (type && strcmp(type, "t5") != 0) {
        fsdp_verify_skipped(c, name, "models of type %s come with a later version", type);
        return FSDP_OK;
    }
    if (!type && needs_model(name)) {
        fsdp_verify_skipped(c, name, "the folder has no model/config.json");
        return FSDP_OK;
    }
    FSDP_TRY(is_generation(c, name, &generation));
    return generation ? fsdp_verify_generation(c, name) : verify_entry(c, name);
}

static fsdp_status verify_entries(fsdp_verify_case *c, char *const *names, size_t count)
{
    char *model = fsdp_verify_path(c, "model"), *type = NULL;
    fsdp_status status = model ? FSDP_OK : FSDP_ERR_NOMEM;
    if (model)
        type = model_type_of(model);
    for (size_t i = 0; i < count && status == FSDP_OK; i++) {
        if (is_input(names[i]))
            continue;
        if (starts_with(names[i], "dcp_") && ends_with(names[i], ".json"))
            continue; /* says what the folder of that name holds */
        status = verify_named(c, names[i], type);
    }
    fsdp_free(type);
    fsdp_free(model);
    return status;
}

static fsdp_status open_tolerance(fsdp_verify_case *c)
{
    char *path = fsdp_verify_path(c, "tolerance.json");
    fsdp_status status = path ? FSDP_OK : FSDP_ERR_NOMEM;
    if (path && fsdp_path_is_file(path))
        status = fsdp_json_read(path, &c->tolerance);
    fsdp_free(path);
    return status;
}

/* Does it hold folders and nothing to compare? Then each of them is a case. */
static bool is_collection(const char *path, char *const *names, size_t count)
{
    size_t folders = 0;
    for (size_t i = 0; i < count; i++) {
        char *entry = fsdp_path_join(path, names[i]);
        bool folder = entry && fsdp_path_is_directory(entry);
        fsdp_free(entry);
        if (strcmp(names[i], "model") == 0 ||
            (!folder && (ends_with(names[i], ".json") || ends_with(names[i], ".safetensors"))))
            return false;
        folders += folder;
    }
    return folders > 0;
}

static fsdp_status verify_one(fsdp_verify_case *c, char *const *names, size_t count)
{
    fsdp_status status = fsdp_agree(c->group, open_tolerance(c));
    if (status == FSDP_OK)
        status = verify_entries(c, names, count);
    fsdp_json_destroy(c->tolerance);
    return status;
}

static fsdp_status verify_collection(const fsdp_verify_case *outer, char *const *names,
                                     size_t count, fsdp_verify_counts *counts)
{
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < count && status == FSDP_OK; i++) {
        char *path = fsdp_path_join(outer->path, names[i]);
        status = path ? FSDP_OK : FSDP_ERR_NOMEM;
        if (path && fsdp_path_is_directory(path))
            status = fsdp_verify_folder(path, outer->group, outer->device, outer->report,
                                        outer->report_arg, counts);
        fsdp_free(path);
    }
    return status;
}

/* Differences are judged on rank 0: its counts are everyone's. */
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

fsdp_status fsdp_verify_folder(const char *path, fsdp_group *group, fsdp_device *device,
                               fsdp_verify_report_fn *report, void *arg, fsdp_verify_counts *counts)
{
    fsdp_verify_case c = {.path = path,
                          .name = fsdp_path_name(path),
                          .group = group,
                          .device = device,
                          .rank = group ? fsdp_group_rank(group) : 0,
                          .world_size = group ? fsdp_group_world_size(group) : 1,
                          .report = report,
                          .report_arg = arg};
    char **names = NULL;
    size_t count = 0;
    FSDP_TRY(fsdp_agree(group, fsdp_directory_list(path, &names, &count)));
    fsdp_status status;
    if (is_collection(path, names, count)) {
        status = verify_collection(&c, names, count, counts);
    } else {
        status = verify_one(&c, names, count);
        if (status == FSDP_OK)
            status = share_counts(&c, counts);
    }
    fsdp_free(names);
    return status;
}
