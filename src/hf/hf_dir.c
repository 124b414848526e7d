/* See hf_dir.h. In the cache of huggingface_hub, each model has a folder models--ORG--NAME. Its
 * file refs/main contains the name (a hash) of a snapshot. Its folder snapshots/HASH contains links
 * to the files of that snapshot. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/base/json.h"
#include "src/hf/hf_dir.h"

enum {
    MAX_REF_BYTES = 256,
    CACHE_FOLDERS = 5
};

/* ---- names and folders ----------------------------------------------------------------------- */

/* Return true if `name` has the form "name" or "org/name". Each part consists of letters, digits,
 * '-', '_' and '.', and does not begin with a dot. */
static bool is_hub_name(const char *name)
{
    int parts = 0;
    while (*name) {
        size_t n = 0;
        while (isalnum((unsigned char)name[n]) || (name[n] && strchr("-_.", name[n])))
            n++;
        if (n == 0 || name[0] == '.' || ++parts > 2)
            return false;
        if (name[n] && (name[n] != '/' || !name[n + 1]))
            return false;
        name += n + (name[n] == '/');
    }
    return parts > 0;
}

/* Return the name of a repository's folder in the cache, such as "models--org--name" for
 * "org/name". The caller owns the text. */
static char *repository_folder(const char *name)
{
    const char *slash = strchr(name, '/');
    if (!slash)
        return fsdp_strdup_printf("models--%s", name);
    return fsdp_strdup_printf("models--%.*s--%s", (int)(slash - name), name, slash + 1);
}

/* Set *folder to cache folder `i`, with ~ expanded, or to NULL if the environment variable of this
 * folder is not set. */
static fsdp_status cache_folder(size_t i, char **folder)
{
    static const struct {
        const char *variable, *below;
    } places[CACHE_FOLDERS] = {
        {"HF_HUB_CACHE", ""},
        {"HUGGINGFACE_HUB_CACHE", ""},
        {"HF_HOME", "/hub"},
        {"XDG_CACHE_HOME", "/huggingface/hub"},
        {"HOME", "/.cache/huggingface/hub"},
    };
    const char *value = getenv(places[i].variable), *home = getenv("HOME");
    *folder = NULL;
    if (!value || !*value)
        return FSDP_OK;
    bool in_home = value[0] == '~' && (value[1] == '/' || !value[1]) && home;
    *folder = fsdp_strdup_printf("%s%s%s", in_home ? home : "", in_home ? value + 1 : value,
                                 places[i].below);
    return *folder ? FSDP_OK : FSDP_ERR_NOMEM;
}

/* ---- snapshots ------------------------------------------------------------------------------- */

/* Set *hash to the hash in the file refs/main of a repository, or to NULL if there is no such
 * file. */
static fsdp_status read_ref(const char *repository, char **hash)
{
    size_t bytes;
    *hash = NULL;
    char *path = fsdp_path_join(repository, "refs/main");
    if (!path)
        return FSDP_ERR_NOMEM;
    fsdp_status status = FSDP_OK;
    if (fsdp_path_is_file(path))
        status = fsdp_file_read(path, MAX_REF_BYTES, hash, &bytes);
    if (*hash) {
        (*hash)[strcspn(*hash, " \t\r\n")] = 0;
        if (!**hash || strchr(*hash, '/') || (*hash)[0] == '.') {
            status = fsdp_error(FSDP_ERR_FORMAT, "%s: not the name of a snapshot", path);
            fsdp_free(*hash);
        }
    }
    fsdp_free(path);
    return status;
}

/* For a repository without refs/main, set *hash to the hash of its snapshot. Return an error if the
 * folder `snapshots` does not contain exactly one snapshot. */
static fsdp_status only_snapshot(const char *snapshots, char **hash)
{
    char **names;
    size_t count;
    FSDP_TRY(fsdp_directory_list(snapshots, &names, &count));
    fsdp_status status = FSDP_OK;
    if (count == 1 && !(*hash = fsdp_strdup(names[0])))
        status = FSDP_ERR_NOMEM;
    else if (count != 1)
        status = fsdp_error(FSDP_ERR_NOT_FOUND, "%s: %zu snapshots and no refs/main that names one",
                            snapshots, count);
    fsdp_free(names);
    return status;
}

static fsdp_status find_snapshot(const char *repository, const char *snapshots, char **dir)
{
    char *hash = NULL;
    FSDP_TRY(read_ref(repository, &hash));
    if (!hash)
        FSDP_TRY(only_snapshot(snapshots, &hash));
    char *found = fsdp_path_join(snapshots, hash);
    fsdp_status status = found ? FSDP_OK : FSDP_ERR_NOMEM;
    if (found && !fsdp_path_is_directory(found)) {
        status =
            fsdp_error(FSDP_ERR_NOT_FOUND, "%s: refs/main names snapshot %s, which is not there",
                       repository, hash);
        fsdp_free(found);
    } else if (found) {
        *dir = found;
    }
    fsdp_free(hash);
    return status;
}

/* Set *dir to the snapshot of the repository `cache`/`folder`. If the repository does not exist, do
 * not change *dir. */
static fsdp_status look_into(const char *cache, const char *folder, char **dir)
{
    char *repository = fsdp_path_join(cache, folder);
    char *snapshots = repository ? fsdp_path_join(repository, "snapshots") : NULL;
    fsdp_status status = snapshots ? FSDP_OK : FSDP_ERR_NOMEM;
    if (snapshots && fsdp_path_is_directory(snapshots))
        status = find_snapshot(repository, snapshots, dir);
    fsdp_free(snapshots);
    fsdp_free(repository);
    return status;
}

/* ---- the model argument ---------------------------------------------------------------------- */

static fsdp_status search_caches(const char *model, const char *folder, char **dir)
{
    char searched[768] = "";
    size_t used = 0;
    for (size_t i = 0; i < CACHE_FOLDERS && !*dir; i++) {
        char *cache;
        FSDP_TRY(cache_folder(i, &cache));
        if (!cache)
            continue;
        fsdp_status status = look_into(cache, folder, dir);
        int n = snprintf(searched + used, sizeof searched - used, "%s%s", used ? ", " : "", cache);
        used += (size_t)n < sizeof searched - used ? (size_t)n : 0;
        fsdp_free(cache);
        FSDP_TRY(status);
    }
    if (*dir)
        return FSDP_OK;
    return fsdp_error(
        FSDP_ERR_NOT_FOUND,
        "model '%s' is neither a directory nor in the Hugging Face cache: no %s in %s", model,
        folder, used ? searched : "any folder ($HOME is not set)");
}

fsdp_status fsdp_hf_dir_resolve(const char *model, char **dir)
{
    if (fsdp_path_is_directory(model)) {
        *dir = fsdp_strdup(model);
        return *dir ? FSDP_OK : FSDP_ERR_NOMEM;
    }
    if (fsdp_path_is_file(model))
        return fsdp_error(FSDP_ERR_INVALID,
                          "model '%s' is a file; the directory that holds config.json is needed. "
                          "If it holds weights, make one: fsdp checkpoint convert %s NEW_DIR "
                          "--format hf --model MODEL",
                          model, model);
    if (!is_hub_name(model))
        return fsdp_error(FSDP_ERR_NOT_FOUND, "model '%s': no such directory", model);
    char *folder = repository_folder(model), *found = NULL;
    if (!folder)
        return FSDP_ERR_NOMEM;
    fsdp_status status = search_caches(model, folder, &found);
    fsdp_free(folder);
    if (status == FSDP_OK)
        *dir = found;
    return status;
}

/* ---- tokenizer files ------------------------------------------------------------------------- */

static const char *const tokenizer_files[] = {
    "spiece.model",
    "tokenizer.model",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "chat_template.jinja",
    "chat_template.json",
};

bool fsdp_hf_dir_is_tokenizer_file(const char *name)
{
    for (size_t i = 0; i < FSDP_LENGTH(tokenizer_files); i++)
        if (strcmp(name, tokenizer_files[i]) == 0)
            return true;
    return false;
}

static fsdp_status copy_as(const char *source, const char *to, const char *name)
{
    char *target = fsdp_path_join(to, name);
    fsdp_status status = target ? fsdp_file_copy(source, target) : FSDP_ERR_NOMEM;
    fsdp_free(target);
    return status;
}

static fsdp_status copy_if_there(const char *from, const char *to, const char *name)
{
    char *source = fsdp_path_join(from, name);
    fsdp_status status = source ? FSDP_OK : FSDP_ERR_NOMEM;
    if (source && fsdp_path_exists(source))
        status = copy_as(source, to, name);
    fsdp_free(source);
    return status;
}

static bool is_sentencepiece_model(const char *name)
{
    return strcmp(name, "spiece.model") == 0 || strcmp(name, "tokenizer.model") == 0;
}

static fsdp_status copy_from_beside(const char *file, const char *to, const char *name)
{
    char *folder = fsdp_path_parent(file);
    fsdp_status status = folder ? copy_if_there(folder, to, name) : FSDP_ERR_NOMEM;
    fsdp_free(folder);
    return status;
}

fsdp_status fsdp_hf_dir_copy_tokenizer(const char *from, const char *to, const char *file_name)
{
    const char *name = fsdp_path_name(from);
    const bool folder = fsdp_path_is_directory(from);
    if (!folder && !fsdp_hf_dir_is_tokenizer_file(name)) {
        FSDP_TRY(copy_as(from, to, file_name));
        FSDP_TRY(copy_from_beside(from, to, "tokenizer_config.json"));
        return copy_from_beside(from, to, "added_tokens.json");
    }
    if (!folder)
        FSDP_TRY(copy_as(from, to, name));
    for (size_t i = 0; i < FSDP_LENGTH(tokenizer_files); i++) {
        if (folder)
            FSDP_TRY(copy_if_there(from, to, tokenizer_files[i]));
        else if (!is_sentencepiece_model(tokenizer_files[i]))
            FSDP_TRY(copy_from_beside(from, to, tokenizer_files[i]));
    }
    return FSDP_OK;
}

/* ---- configuration files --------------------------------------------------------------------- */

/* Set the dtype in the config.json at `path`. Its key is "dtype", or "torch_dtype" in a file of
 * transformers before version 5. */
static fsdp_status set_dtype(const char *path, const char *dtype)
{
    fsdp_json *config;
    FSDP_TRY(fsdp_json_read(path, &config));
    fsdp_json_node root = fsdp_json_root(config);
    bool is_old = fsdp_json_has(root, "torch_dtype");
    fsdp_json_set_str(root, is_old ? "torch_dtype" : "dtype", dtype);
    fsdp_status status = fsdp_json_write(config, FSDP_JSON_PRETTY, path);
    fsdp_json_destroy(config);
    return status;
}

fsdp_status fsdp_hf_dir_copy_config(const char *from, const char *to, const char *dtype)
{
    FSDP_TRY(copy_if_there(from, to, "config.json"));
    FSDP_TRY(copy_if_there(from, to, "generation_config.json"));
    char *path = fsdp_path_join(to, "config.json");
    fsdp_status status = path ? FSDP_OK : FSDP_ERR_NOMEM;
    if (path && dtype && fsdp_path_is_file(path))
        status = set_dtype(path, dtype);
    fsdp_free(path);
    return status;
}
