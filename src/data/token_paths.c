/* See token_paths.h. */
#include "src/data/token_paths.h"

#include <ctype.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/data/dataset.h"

static bool is_token_file_name(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot && strcmp(dot, ".bin") == 0;
}

/* Return true if `name` contains the word "val", "valid" or "validation". "fineweb_val_000000.bin"
 * contains it, but "interval.bin" does not. */
static bool is_for_validation(const char *name)
{
    static const char *const words[] = {"val", "valid", "validation"};
    while (*name) {
        size_t length = 0;
        while (isalpha((unsigned char)name[length]))
            length++;
        for (size_t i = 0; i < FSDP_LENGTH(words); i++)
            if (length == strlen(words[i]) && strncmp(name, words[i], length) == 0)
                return true;
        name += length ? length : 1;
    }
    return false;
}

static bool is_pattern(const char *path)
{
    return strpbrk(path, "*?[") && !fsdp_path_is_file(path);
}

static fsdp_status holds_token_files(const char *folder, bool *holds)
{
    char **names = NULL;
    size_t count = 0, i = 0;
    FSDP_TRY(fsdp_directory_list(folder, &names, &count));
    while (i < count && !is_token_file_name(names[i]))
        i++;
    fsdp_free(names);
    *holds = i < count;
    return FSDP_OK;
}

fsdp_status fsdp_is_token_path(const char *path, bool *is)
{
    if (fsdp_path_is_directory(path))
        return holds_token_files(path, is);
    *is = is_token_file_name(path) || is_pattern(path);
    return FSDP_OK;
}

/* ---- lists ---- */

void fsdp_path_list_fini(fsdp_path_list *list)
{
    for (size_t i = 0; i < list->len; i++)
        fsdp_free(list->items[i]);
    fsdp_free(list->items);
    *list = (fsdp_path_list){0};
}

/* Append `path` and take ownership of it, also on failure. If `path` is NULL, return
 * FSDP_ERR_NOMEM. */
static fsdp_status add_path(fsdp_path_list *list, char *path)
{
    if (!path || !FSDP_GROW(list->items, list->cap, list->len + 1)) {
        fsdp_free(path);
        return FSDP_ERR_NOMEM;
    }
    list->items[list->len++] = path;
    return FSDP_OK;
}

static fsdp_status add_folder(fsdp_path_list *list, const char *folder, bool validation)
{
    char **names = NULL;
    size_t count = 0;
    FSDP_TRY(fsdp_directory_list(folder, &names, &count));
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < count && status == FSDP_OK; i++)
        if (is_token_file_name(names[i]) && is_for_validation(names[i]) == validation)
            status = add_path(list, fsdp_path_join(folder, names[i]));
    fsdp_free(names);
    if (status == FSDP_OK && list->len == 0)
        status = fsdp_error(FSDP_ERR_NOT_FOUND,
                            "%s: no token file %s 'val' in its name; a pattern ('%s/*.bin') takes "
                            "any",
                            folder, validation ? "with" : "without", folder);
    return status;
}

static int compare_paths(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static fsdp_status add_matches(fsdp_path_list *list, const char *pattern, const glob_t *found)
{
    for (size_t i = 0; i < found->gl_pathc; i++) {
        const char *path = found->gl_pathv[i];
        if (!is_token_file_name(path))
            return fsdp_error(FSDP_ERR_INVALID,
                              "%s: matches %s, which is no .bin file; patterns are for token files",
                              pattern, path);
        FSDP_TRY(add_path(list, fsdp_strdup(path)));
    }
    qsort(list->items, list->len, sizeof *list->items, compare_paths);
    return FSDP_OK;
}

static fsdp_status add_pattern(fsdp_path_list *list, const char *pattern)
{
    glob_t found = {0};
    int failure = glob(pattern, GLOB_NOSORT, NULL, &found);
    fsdp_status status;
    if (failure == GLOB_NOMATCH)
        status = fsdp_error(FSDP_ERR_NOT_FOUND, "%s: no file matches", pattern);
    else if (failure)
        status = failure == GLOB_NOSPACE ? fsdp_error_nomem()
                                         : fsdp_error(FSDP_ERR_IO, "%s: cannot be read", pattern);
    else
        status = add_matches(list, pattern, &found);
    globfree(&found);
    return status;
}

fsdp_status fsdp_token_paths(const char *path, bool validation, fsdp_path_list *out)
{
    fsdp_path_list list = {0};
    fsdp_status status = fsdp_path_is_directory(path) ? add_folder(&list, path, validation)
                         : is_pattern(path)           ? add_pattern(&list, path)
                                                      : add_path(&list, fsdp_strdup(path));
    if (status != FSDP_OK) {
        fsdp_path_list_fini(&list);
        return status;
    }
    *out = list;
    return FSDP_OK;
}
