/* See data_paths.h. */
#include "src/data/files/data_paths.h"

#include <glob.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/base/str.h"
#include "src/data/files/file_names.h"
#include "src/data/files/split_names.h"

static bool is_token_file_name(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot && strcmp(dot, ".bin") == 0;
}

/* Which files of a folder are listed. */
typedef enum wanted {
    FOR_TRAINING,
    FOR_VALIDATION,
    FOR_EVALUATION, /* files for which fsdp_split_is_evaluation() returns true; used for validation
                       if no file is FOR_VALIDATION */
} wanted;

/* Return true if the name of a folder says that all of its files are for validation. */
static bool is_validation_folder(const char *folder)
{
    size_t end = strlen(folder);
    while (end > 1 && folder[end - 1] == '/')
        end--;
    size_t begin = end;
    while (begin > 0 && folder[begin - 1] != '/')
        begin--;
    for (size_t i = 0; fsdp_validation_name(i); i++) {
        const char *name = fsdp_validation_name(i);
        if (strlen(name) == end - begin && memcmp(name, folder + begin, end - begin) == 0)
            return true;
    }
    return false;
}

static bool is_wanted(const char *folder, const char *name, wanted what)
{
    if (what == FOR_VALIDATION && is_validation_folder(folder))
        return true;
    return what == FOR_EVALUATION
               ? fsdp_split_is_evaluation(name)
               : fsdp_split_kind_of(name) ==
                     (what == FOR_VALIDATION ? FSDP_SPLIT_KIND_VALIDATION : FSDP_SPLIT_KIND_TRAIN);
}

/* Return true if `path` is a pattern. The path of an existing file or folder is no pattern, even if
 * it has the characters of one. */
static bool is_pattern(const char *path)
{
    return strpbrk(path, "*?[") && !fsdp_path_exists(path);
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

/* Return true if the pattern itself or one of the files that match it has the ending of a token
 * file. */
static bool matches_token_files(const char *pattern)
{
    glob_t found = {0};
    bool tokens = is_token_file_name(pattern);
    if (glob(pattern, 0, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc; i++)
            tokens |= is_token_file_name(found.gl_pathv[i]);
    globfree(&found);
    return tokens;
}

/* If `path` is the name of a dataset of Megatron, set *out to the dataset's file PREFIX.bin. The
 * name is PREFIX or PREFIX.idx, and both files PREFIX.bin and PREFIX.idx must exist. (Megatron's
 * programs take PREFIX as the name.) Otherwise set *out to a copy of `path`. The caller owns
 * *out. */
static fsdp_status megatron_path(const char *path, char **out)
{
    size_t length = strlen(path);
    if (length > 4 && strcmp(path + length - 4, ".idx") == 0)
        length -= 4;
    char *index = fsdp_strdup_printf("%.*s.idx", (int)length, path);
    char *tokens = fsdp_strdup_printf("%.*s.bin", (int)length, path);
    const bool is = index && tokens && fsdp_path_is_file(index) && fsdp_path_is_file(tokens) &&
                    (strcmp(index, path) == 0 || !fsdp_path_exists(path));
    *out = is ? tokens : fsdp_strdup(path);
    if (!is)
        fsdp_free(tokens);
    fsdp_free(index);
    return *out ? FSDP_OK : FSDP_ERR_NOMEM;
}

static fsdp_status is_token_file(const char *path, bool *is)
{
    char *found;
    FSDP_TRY(megatron_path(path, &found));
    *is = is_token_file_name(found);
    fsdp_free(found);
    return FSDP_OK;
}

fsdp_status fsdp_is_token_path(const char *path, bool *is)
{
    if (fsdp_path_is_directory(path))
        return holds_token_files(path, is);
    if (!is_pattern(path))
        return is_token_file(path, is);
    *is = matches_token_files(path);
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

static fsdp_status add_token_file(fsdp_path_list *list, const char *path)
{
    char *found;
    FSDP_TRY(megatron_path(path, &found));
    return add_path(list, found);
}

/* Return the end of an error message that begins with "no file with": the words that the name of a
 * file must or must not have. */
static const char *words_of(bool validation)
{
    return validation ? "the word 'validation', 'valid', 'val', 'dev' or 'eval' in its name, and "
                        "without the word 'test'"
                      : "a name that has none of the words 'validation', 'valid', 'val', 'dev', "
                        "'test' and 'eval'";
}

static fsdp_status add_token_names(fsdp_path_list *list, const char *folder, char *const *names,
                                   size_t count, wanted what)
{
    for (size_t i = 0; i < count; i++)
        if (is_token_file_name(names[i]) && is_wanted(folder, names[i], what))
            FSDP_TRY(add_path(list, fsdp_path_join(folder, names[i])));
    return FSDP_OK;
}

static fsdp_status add_folder(fsdp_path_list *list, const char *folder, bool validation)
{
    char **names = NULL;
    size_t count = 0;
    FSDP_TRY(fsdp_directory_list(folder, &names, &count));
    fsdp_status status =
        add_token_names(list, folder, names, count, validation ? FOR_VALIDATION : FOR_TRAINING);
    if (status == FSDP_OK && validation && list->len == 0)
        status = add_token_names(list, folder, names, count, FOR_EVALUATION);
    fsdp_free(names);
    if (status == FSDP_OK && list->len == 0)
        status = fsdp_error(FSDP_ERR_NOT_FOUND,
                            "%s: no token file with %s; a pattern ('%s/*.bin') takes any", folder,
                            words_of(validation), folder);
    return status;
}

static int compare_paths(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static fsdp_status add_matches(fsdp_path_list *list, bool tokens, const char *pattern,
                               const glob_t *found)
{
    for (size_t i = 0; i < found->gl_pathc; i++) {
        const char *path = found->gl_pathv[i];
        if (is_token_file_name(path) != tokens)
            return fsdp_error(FSDP_ERR_INVALID,
                              "%s: matches %s, which is %s .bin file, unlike other matches",
                              pattern, path, tokens ? "no" : "a");
        FSDP_TRY(add_path(list, fsdp_strdup(path)));
    }
    qsort(list->items, list->len, sizeof *list->items, compare_paths);
    return FSDP_OK;
}

static fsdp_status add_pattern(fsdp_path_list *list, bool tokens, const char *pattern)
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
        status = add_matches(list, tokens, pattern, &found);
    globfree(&found);
    return status;
}

fsdp_status fsdp_token_paths(const char *path, bool validation, fsdp_path_list *out)
{
    fsdp_path_list list = {0};
    fsdp_status status = fsdp_path_is_directory(path) ? add_folder(&list, path, validation)
                         : is_pattern(path)           ? add_pattern(&list, true, path)
                                                      : add_token_file(&list, path);
    if (status != FSDP_OK) {
        fsdp_path_list_fini(&list);
        return status;
    }
    *out = list;
    return FSDP_OK;
}

/* ---- folders of texts ---- */

bool fsdp_is_plain_text_name(const char *path)
{
    return fsdp_name_kind_of(path) == FSDP_NAME_TEXT;
}

static fsdp_status mixed_kinds(const char *folder, const char *a, const char *b)
{
    return fsdp_error(FSDP_ERR_INVALID,
                      "%s: %s and %s are files of different kinds: a pattern in quotes, such as "
                      "'%s/*%s', takes those of one kind",
                      folder, a, b, folder, strrchr(a, '.'));
}

/* Return true if a file of this name is read as a file of texts when its folder is given. */
static bool is_text_name(const char *name)
{
    const fsdp_name_kind kind = fsdp_name_kind_of(name);
    return kind != FSDP_NAME_UNKNOWN && kind != FSDP_NAME_ARROW && *name != '.' &&
           !fsdp_name_is_metadata(name);
}

static fsdp_status add_text_names(fsdp_path_list *list, const char *folder, char *const *names,
                                  size_t count, wanted what)
{
    const char *first = NULL;
    for (size_t i = 0; i < count; i++) {
        const fsdp_name_kind kind = fsdp_name_kind_of(names[i]);
        if (!is_text_name(names[i]) || !is_wanted(folder, names[i], what))
            continue;
        if (first && kind != fsdp_name_kind_of(first))
            return mixed_kinds(folder, first, names[i]);
        if (!first)
            first = names[i];
        FSDP_TRY(add_path(list, fsdp_path_join(folder, names[i])));
    }
    return FSDP_OK;
}

bool fsdp_split_has_another_file(const char *folder, const char *path, bool validation)
{
    const char *name = fsdp_path_name(path);
    char **names = NULL;
    size_t count = 0;
    bool found = false;
    if (fsdp_directory_list(folder, &names, &count) != FSDP_OK)
        return false;
    for (size_t i = 0; i < count && !found; i++)
        found = is_text_name(names[i]) && fsdp_split_is_named(names[i], validation) &&
                strcmp(names[i], name) != 0;
    fsdp_free(names);
    return found;
}

static fsdp_status add_text_folder(fsdp_path_list *list, const char *folder, bool validation)
{
    char **names = NULL;
    size_t count = 0;
    FSDP_TRY(fsdp_directory_list(folder, &names, &count));
    fsdp_status status =
        add_text_names(list, folder, names, count, validation ? FOR_VALIDATION : FOR_TRAINING);
    if (status == FSDP_OK && validation && list->len == 0)
        status = add_text_names(list, folder, names, count, FOR_EVALUATION);
    fsdp_free(names);
    if (status == FSDP_OK && list->len == 0)
        status = fsdp_error(FSDP_ERR_NOT_FOUND,
                            "%s: holds neither wikihowAll.csv nor wikihowSep.csv, and no file of "
                            "JSON, CSV or text with %s; name a file in it, or a pattern",
                            folder, words_of(validation));
    return status;
}

/* Add WikiHow's file in a folder, if there is one. */
static fsdp_status add_wikihow(fsdp_path_list *list, const char *folder)
{
    static const char *const names[] = {"wikihowAll.csv", "wikihowSep.csv"};
    for (size_t i = 0; i < FSDP_LENGTH(names) && list->len == 0; i++)
        if (fsdp_directory_has_file(folder, names[i]))
            FSDP_TRY(add_path(list, fsdp_path_join(folder, names[i])));
    return FSDP_OK;
}

static fsdp_status add_texts(fsdp_path_list *list, const char *path, bool validation)
{
    if (is_pattern(path))
        return add_pattern(list, false, path);
    if (!fsdp_path_is_directory(path))
        return add_path(list, fsdp_strdup(path));
    FSDP_TRY(add_wikihow(list, path));
    return list->len ? FSDP_OK : add_text_folder(list, path, validation);
}

fsdp_status fsdp_text_paths(const char *path, bool validation, fsdp_path_list *out)
{
    fsdp_path_list list = {0};
    fsdp_status status = add_texts(&list, path, validation);
    if (status != FSDP_OK) {
        fsdp_path_list_fini(&list);
        return status;
    }
    *out = list;
    return FSDP_OK;
}

/* Set *folder to `path`/`name` if that is a folder, and to NULL otherwise. The caller owns *folder.
 */
static fsdp_status find_folder(const char *path, const char *name, char **folder)
{
    char *found = fsdp_path_join(path, name);
    *folder = NULL;
    if (!found)
        return FSDP_ERR_NOMEM;
    if (fsdp_path_is_directory(found))
        *folder = found;
    else
        fsdp_free(found);
    return FSDP_OK;
}

fsdp_status fsdp_split_folder(const char *path, bool validation, char **out)
{
    char *folder = NULL;
    *out = NULL;
    if (fsdp_path_is_directory(path))
        FSDP_TRY(find_folder(path, "train", &folder));
    if (!folder || !validation) {
        *out = folder ? folder : fsdp_strdup(path);
        return *out ? FSDP_OK : FSDP_ERR_NOMEM;
    }
    fsdp_free(folder);
    for (size_t i = 0; !*out && fsdp_validation_name(i); i++)
        FSDP_TRY(find_folder(path, fsdp_validation_name(i), out));
    return *out ? FSDP_OK
                : fsdp_error(FSDP_ERR_NOT_FOUND, "%s: has a folder train, but no folder validation",
                             path);
}
