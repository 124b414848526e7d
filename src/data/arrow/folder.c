/* See folder.h. */
#include "src/data/arrow/folder.h"

#include <glob.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/base/str.h"
#include "src/data/arrow/file.h"
#include "src/data/files/file_names.h"
#include "src/data/files/split_names.h"

static const char dict_name[] = "dataset_dict.json", state_name[] = "state.json",
                  info_name[] = "dataset_info.json";

/* ---- kinds of paths ---- */

static bool has_arrow_ending(const char *path)
{
    return fsdp_name_kind_of(path) == FSDP_NAME_ARROW && !fsdp_name_is_compressed(path);
}

/* Return true if the name is that of a file of rows in another format. */
static bool has_text_ending(const char *path)
{
    const fsdp_name_kind kind = fsdp_name_kind_of(path);
    return kind != FSDP_NAME_UNKNOWN && kind != FSDP_NAME_ARROW;
}

/* Return true if a file in `dir` or in its folder "data" has a name like an Arrow or Parquet file.
 */
static bool holds_arrow_files(const char *dir)
{
    char *inner = fsdp_path_join(dir, "data");
    const char *dirs[] = {dir, inner};
    bool found = false;
    for (size_t k = 0; inner && k < FSDP_LENGTH(dirs); k++) {
        char **names = NULL;
        size_t n = 0;
        if (!fsdp_path_is_directory(dirs[k]) || fsdp_directory_list(dirs[k], &names, &n) != FSDP_OK)
            continue;
        for (size_t i = 0; i < n; i++)
            found |= has_arrow_ending(names[i]);
        fsdp_free(names);
    }
    fsdp_free(inner);
    return found;
}

/* Return true if the folder has files of rows in other formats. */
static bool holds_text_files(const char *dir)
{
    char **names = NULL;
    size_t n = 0;
    bool found = false;
    if (fsdp_directory_list(dir, &names, &n) != FSDP_OK)
        return false;
    for (size_t i = 0; i < n; i++)
        found |= has_text_ending(names[i]) && !fsdp_name_is_metadata(names[i]);
    fsdp_free(names);
    return found;
}

bool fsdp_is_arrow_path(const char *path)
{
    if (!fsdp_path_is_directory(path))
        return has_arrow_ending(path) || (!has_text_ending(path) && fsdp_arrow_file_is(path));
    return fsdp_directory_has_file(path, dict_name) || fsdp_directory_has_file(path, state_name) ||
           holds_arrow_files(path) ||
           (fsdp_directory_has_file(path, info_name) && !holds_text_files(path));
}

/* ---- splits ---- */

static fsdp_status read_json(const char *dir, const char *name, fsdp_json **doc)
{
    char *path = fsdp_path_join(dir, name);
    const fsdp_status status = path ? fsdp_json_read(path, doc) : FSDP_ERR_NOMEM;
    fsdp_free(path);
    return status;
}

static const char *find_split(fsdp_json_node splits, const char *name)
{
    for (size_t i = 0; i < fsdp_json_len(splits); i++) {
        const char *found;
        if (fsdp_json_get_str(fsdp_json_at(splits, i), NULL, &found) == FSDP_OK &&
            strcmp(found, name) == 0)
            return found;
    }
    return NULL;
}

static const char *find_validation(fsdp_json_node splits)
{
    const char *found = NULL;
    for (size_t i = 0; !found && fsdp_validation_name(i); i++)
        found = find_split(splits, fsdp_validation_name(i));
    return found;
}

static fsdp_status missing_split(const char *path, const char *wanted, fsdp_json_node splits)
{
    fsdp_str names = {0};
    const char *name;
    for (size_t i = 0; i < fsdp_json_len(splits); i++)
        if (fsdp_json_get_str(fsdp_json_at(splits, i), NULL, &name) == FSDP_OK)
            fsdp_str_printf(&names, "%s%.60s", names.len ? ", " : "", name);
    char *text = fsdp_str_take(&names);
    const fsdp_status status =
        fsdp_error(FSDP_ERR_NOT_FOUND,
                   "%s: a DatasetDict without a split '%s'; its splits are: %s. Name the folder of "
                   "one, e.g. %s/SPLIT",
                   path, wanted, text ? text : "none", path);
    fsdp_free(text);
    return status;
}

static fsdp_status choose_split(const char *path, fsdp_json_node dict, fsdp_arrow_split split,
                                const char **name)
{
    fsdp_json_node splits;
    FSDP_TRY(fsdp_json_get_array(dict, "splits", &splits));
    if (split == FSDP_ARROW_SPLIT_TRAIN)
        *name = find_split(splits, "train");
    else if (!(*name = find_validation(splits)))
        *name = find_split(splits, "test");
    if (*name)
        return FSDP_OK;
    return missing_split(path, split == FSDP_ARROW_SPLIT_TRAIN ? "train" : "validation", splits);
}

bool fsdp_arrow_has_validation(const char *path)
{
    fsdp_json *doc;
    if (!fsdp_path_is_directory(path) || !fsdp_directory_has_file(path, dict_name) ||
        read_json(path, dict_name, &doc) != FSDP_OK)
        return false;
    const bool has = find_validation(fsdp_json_find(fsdp_json_root(doc), "splits")) != NULL;
    fsdp_json_destroy(doc);
    return has;
}

/* If the folder is that of a DatasetDict, replace out->path by the folder of a split. */
static fsdp_status enter_split(fsdp_arrow_folder *out, fsdp_arrow_split split)
{
    fsdp_json *doc;
    const char *name = NULL;
    if (!fsdp_directory_has_file(out->path, dict_name))
        return FSDP_OK;
    FSDP_TRY(read_json(out->path, dict_name, &doc));
    fsdp_status status = choose_split(out->path, fsdp_json_root(doc), split, &name);
    char *inner = status == FSDP_OK ? fsdp_path_join(out->path, name) : NULL;
    if (status == FSDP_OK && (!inner || !(out->split = fsdp_strdup(name))))
        status = FSDP_ERR_NOMEM;
    if (status == FSDP_OK && !fsdp_path_is_directory(inner))
        status = fsdp_error(FSDP_ERR_NOT_FOUND, "%s/%s names the split '%s', but %s is no folder",
                            out->path, dict_name, name, inner);
    fsdp_json_destroy(doc);
    if (status == FSDP_OK) {
        fsdp_free(out->path);
        out->path = inner;
    } else {
        fsdp_free(inner);
    }
    return status;
}

/* ---- state.json ---- */

/* Add the paths of the files in the list `key` of state.json. */
static fsdp_status add_files(const char *dir, fsdp_json_node state, const char *key, char ***files,
                             size_t *n)
{
    fsdp_json_node list;
    size_t cap = *n;
    FSDP_TRY(fsdp_json_opt_array(state, key, &list));
    for (size_t i = 0; i < fsdp_json_len(list); i++) {
        const fsdp_json_node entry = fsdp_json_at(list, i);
        const char *name;
        FSDP_TRY(fsdp_json_get_str(entry, "filename", &name));
        if (fsdp_json_has(entry, "skip") || fsdp_json_has(entry, "take"))
            return fsdp_json_mismatch(entry, fsdp_json_has(entry, "skip") ? "skip" : "take",
                                      "none: files of which only a part is used are not supported; "
                                      "load_from_disk and save_to_disk of a newer version of "
                                      "datasets write all files again");
        char *path = fsdp_path_join(dir, name);
        const fsdp_status status = path ? fsdp_names_add(files, n, &cap, path) : FSDP_ERR_NOMEM;
        fsdp_free(path);
        FSDP_TRY(status);
    }
    return FSDP_OK;
}

/* Read which columns the rows have. After datasets' set_format(columns=...), the rows have only
 * these columns. But if output_all_columns is true, the rows have all columns. */
static fsdp_status read_columns(fsdp_json_node state, fsdp_arrow_folder *out)
{
    fsdp_json_node list;
    bool all;
    size_t cap = 0;
    FSDP_TRY(fsdp_json_opt_bool(state, "_output_all_columns", false, &all));
    FSDP_TRY(fsdp_json_opt_array(state, "_format_columns", &list));
    out->has_columns = fsdp_json_kind_of(list) == FSDP_JSON_ARRAY && !all;
    for (size_t i = 0; out->has_columns && i < fsdp_json_len(list); i++) {
        const char *name;
        FSDP_TRY(fsdp_json_get_str(fsdp_json_at(list, i), NULL, &name));
        FSDP_TRY(fsdp_names_add(&out->columns, &out->n_columns, &cap, name));
    }
    return FSDP_OK;
}

static fsdp_status read_state(fsdp_json_node state, fsdp_arrow_folder *out)
{
    fsdp_json_node list;
    FSDP_TRY(fsdp_json_get_array(state, "_data_files", &list));
    FSDP_TRY(add_files(out->path, state, "_data_files", &out->files, &out->n_files));
    /* select() and shuffle() saved their indices in files of their own. Versions of datasets before
     * 2.0 listed these files under one of the following two keys. */
    FSDP_TRY(add_files(out->path, state, "_indices_files", &out->indices, &out->n_indices));
    FSDP_TRY(add_files(out->path, state, "_indices_data_files", &out->indices, &out->n_indices));
    return read_columns(state, out);
}

static fsdp_status refuse_folder(const char *path)
{
    if (holds_arrow_files(path))
        return fsdp_error(
            FSDP_ERR_INVALID,
            "%s: has no state.json, so it is not a folder of datasets.save_to_disk(). Name one of "
            "its .arrow files; for Parquet files, in Python: datasets.load_dataset('parquet', "
            "data_dir='%s').save_to_disk('NEW_DIR')",
            path, path);
    return fsdp_error(
        FSDP_ERR_NOT_FOUND,
        "%s: a folder of datasets.save_to_disk() that lacks state.json and Arrow files", path);
}

static fsdp_status open_folder(fsdp_arrow_folder *out, fsdp_arrow_split split)
{
    fsdp_json *state;
    FSDP_TRY(enter_split(out, split));
    if (!fsdp_directory_has_file(out->path, state_name))
        return refuse_folder(out->path);
    FSDP_TRY(read_json(out->path, state_name, &state));
    const fsdp_status status = read_state(fsdp_json_root(state), out);
    fsdp_json_destroy(state);
    FSDP_TRY(status);
    if (!fsdp_directory_has_file(out->path, info_name))
        return FSDP_OK;
    return read_json(out->path, info_name, &out->info);
}

/* ---- a file, or a pattern ---- */

/* Add the file `path` or, if there is no such file and `path` is a pattern, all files that match
 * it, in the order of their names. */
static fsdp_status add_file_or_matches(fsdp_arrow_folder *out, const char *path)
{
    glob_t found = {0};
    size_t cap = 0;
    fsdp_status status = FSDP_OK;
    if (!strpbrk(path, "*?[") || fsdp_path_exists(path))
        return fsdp_names_add(&out->files, &out->n_files, &cap, path);
    const int failure = glob(path, 0, NULL, &found);
    if (failure == GLOB_NOMATCH)
        status = fsdp_error(FSDP_ERR_NOT_FOUND, "%s: no file matches", path);
    else if (failure)
        status = failure == GLOB_NOSPACE ? fsdp_error_nomem()
                                         : fsdp_error(FSDP_ERR_IO, "%s: cannot be read", path);
    for (size_t i = 0; i < found.gl_pathc && status == FSDP_OK; i++)
        status = fsdp_names_add(&out->files, &out->n_files, &cap, found.gl_pathv[i]);
    globfree(&found);
    return status;
}

/* ---- functions of the header ---- */

fsdp_status fsdp_arrow_folder_open(const char *path, fsdp_arrow_split split, fsdp_arrow_folder *out)
{
    fsdp_arrow_folder folder = {.path = fsdp_path_stripped(path)};
    fsdp_status status = folder.path ? FSDP_OK : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = fsdp_path_is_directory(path) ? open_folder(&folder, split)
                                              : add_file_or_matches(&folder, path);
    if (status == FSDP_OK)
        *out = folder;
    else
        fsdp_arrow_folder_fini(&folder);
    return status;
}

void fsdp_arrow_folder_fini(fsdp_arrow_folder *folder)
{
    fsdp_names_free(folder->files, folder->n_files);
    fsdp_names_free(folder->indices, folder->n_indices);
    fsdp_names_free(folder->columns, folder->n_columns);
    fsdp_json_destroy(folder->info);
    fsdp_free(folder->path);
    fsdp_free(folder->split);
    *folder = (fsdp_arrow_folder){0};
}
