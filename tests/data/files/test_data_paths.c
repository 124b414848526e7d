/* Files that a path refers to: folders, their splits, and names with the characters of a pattern.
 */
#include <stdio.h>
#include <string.h>

#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/data/files/data_paths.h"
#include "tests/test.h"

/* Make the folder `name` with these empty files, which end with NULL, in the test's folder, and set
 * `path` [256] to its path. */
static fsdp_status make_folder(fsdp_test *t, const char *name, const char *const *files, char *path)
{
    char file[512];
    snprintf(path, 256, "%s/%s", fsdp_test_dir(t), name);
    FSDP_TRY(fsdp_directory_make(path));
    for (; *files; files++) {
        snprintf(file, sizeof file, "%s/%s", path, *files);
        FSDP_TRY(fsdp_file_write(file, "", 0));
    }
    return FSDP_OK;
}

/* Write the names of the listed files to `names` [256], with a blank after each. */
static void join_names(const fsdp_path_list *list, char *names)
{
    int n = 0;
    for (size_t i = 0; i < list->len; i++)
        n += snprintf(names + n, 256 - (size_t)n, "%s ", fsdp_path_name(list->items[i]));
}

static void check_paths(fsdp_test *t, const char *path, bool tokens, bool validation,
                        const char *expected)
{
    fsdp_path_list list;
    char names[256] = "";
    ASSERT_OK(tokens ? fsdp_token_paths(path, validation, &list)
                     : fsdp_text_paths(path, validation, &list));
    join_names(&list, names);
    fsdp_path_list_fini(&list);
    ASSERT_STR(names, expected);
}

/* A folder whose only other file is eval.jsonl validates on it, as `fsdp train --data` does. */
TEST(a_file_with_the_word_eval_is_for_validation_if_no_other_is)
{
    static const char *const both[] = {"train.jsonl", "eval.jsonl",      "a_train.bin",
                                       "a_eval.bin",  "eval_test.jsonl", NULL};
    static const char *const all[] = {"train.jsonl", "eval.jsonl", "dev.jsonl", NULL};
    static const char *const tested[] = {"train.jsonl", "test.jsonl", NULL};
    fsdp_path_list list;
    char path[256];
    ASSERT_OK(make_folder(t, "both", both, path));
    check_paths(t, path, false, true, "eval.jsonl ");
    check_paths(t, path, false, false, "train.jsonl ");
    check_paths(t, path, true, true, "a_eval.bin ");
    check_paths(t, path, true, false, "a_train.bin ");
    ASSERT_OK(make_folder(t, "all", all, path));
    check_paths(t, path, false, true, "dev.jsonl ");
    ASSERT_OK(make_folder(t, "tested", tested, path));
    ASSERT_ERROR(fsdp_text_paths(path, true, &list), FSDP_ERR_NOT_FOUND, "'dev' or 'eval'");
}

/* A name with a bracket or a question mark is a pattern only if there is no such file or folder. */
TEST(a_folder_with_the_name_of_a_pattern_is_a_folder)
{
    static const char *const files[] = {"a.jsonl", "b.jsonl", NULL};
    char path[256], pattern[300];
    ASSERT_OK(make_folder(t, "data[1]", files, path));
    check_paths(t, path, false, false, "a.jsonl b.jsonl ");
    ASSERT_OK(make_folder(t, "what?", files, path));
    check_paths(t, path, false, false, "a.jsonl b.jsonl ");
    snprintf(pattern, sizeof pattern, "%s/[b].jsonl", path);
    check_paths(t, pattern, false, false, "b.jsonl ");
}

TEST(further_files_of_a_split_are_found)
{
    static const char *const files[] = {"train.jsonl",
                                        "train_part2.jsonl",
                                        "validation.jsonl",
                                        "trainer_state.json",
                                        "more.jsonl",
                                        "train.bin",
                                        NULL};
    static const char *const one[] = {"train.jsonl", "more.jsonl", "validation.jsonl",
                                      "validation.test.jsonl", NULL};
    char path[256], file[300];
    ASSERT_OK(make_folder(t, "parts", files, path));
    snprintf(file, sizeof file, "%s/train.jsonl", path);
    ASSERT(fsdp_split_has_another_file(path, file, false));
    snprintf(file, sizeof file, "%s/validation.jsonl", path);
    ASSERT(!fsdp_split_has_another_file(path, file, true));
    ASSERT_OK(make_folder(t, "one", one, path));
    snprintf(file, sizeof file, "%s/train.jsonl", path);
    ASSERT(!fsdp_split_has_another_file(path, file, false));
    snprintf(file, sizeof file, "%s/validation.jsonl", path);
    ASSERT(!fsdp_split_has_another_file(path, file, true));
}
