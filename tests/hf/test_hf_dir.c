/* Model arguments: directories and names in a Hugging Face cache. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/hf/hf_dir.h"
#include "tests/test.h"

static const char *in_dir(fsdp_test *t, const char *name)
{
    static char paths[4][400];
    static int next;
    next = (next + 1) % 4;
    snprintf(paths[next], sizeof paths[next], "%s/%s", fsdp_test_dir(t), name);
    return paths[next];
}

static void write_text(fsdp_test *t, const char *name, const char *text)
{
    char *parent = fsdp_path_parent(in_dir(t, name));
    ASSERT(parent != NULL);
    ASSERT_OK(fsdp_directory_make(parent));
    ASSERT_OK(fsdp_file_write(in_dir(t, name), text, strlen(text)));
    fsdp_free(parent);
}

static const char *const variables[] = {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME",
                                        "XDG_CACHE_HOME"};

/* Only HOME is set, to the test's folder `home`. */
static void clean_environment(fsdp_test *t)
{
    for (size_t i = 0; i < FSDP_LENGTH(variables); i++)
        unsetenv(variables[i]);
    setenv("HOME", in_dir(t, "home"), 1);
}

static void expect(fsdp_test *t, const char *model, const char *below)
{
    char *dir = NULL;
    ASSERT_OK(fsdp_hf_dir_resolve(model, &dir));
    ASSERT_STR(dir, in_dir(t, below));
    fsdp_free(dir);
}

TEST(a_directory_is_itself)
{
    char *dir = NULL;
    clean_environment(t);
    ASSERT_OK(fsdp_hf_dir_resolve(fsdp_test_dir(t), &dir));
    ASSERT_STR(dir, fsdp_test_dir(t));
    fsdp_free(dir);
    write_text(t, "config.json", "{}");
    ASSERT_ERROR(fsdp_hf_dir_resolve(in_dir(t, "config.json"), &dir), FSDP_ERR_INVALID,
                 "is a file");
}

TEST(each_cache_folder_is_searched_in_order)
{
    static const struct {
        const char *variable, *value, *cache;
    } cases[] = {
        {"HOME", "home", "home/.cache/huggingface/hub"},
        {"XDG_CACHE_HOME", "xdg", "xdg/huggingface/hub"},
        {"HF_HOME", "hf", "hf/hub"},
        {"HUGGINGFACE_HUB_CACHE", "old", "old"},
        {"HF_HUB_CACHE", "new", "new"},
    };
    clean_environment(t);
    /* Each is found although the earlier ones still hold the model. */
    for (size_t i = 0; i < FSDP_LENGTH(cases); i++) {
        char path[300];
        setenv(cases[i].variable, in_dir(t, cases[i].value), 1);
        snprintf(path, sizeof path, "%s/models--org--m.1/refs/main", cases[i].cache);
        write_text(t, path, "abc123\n");
        snprintf(path, sizeof path, "%s/models--org--m.1/snapshots/abc123/config.json",
                 cases[i].cache);
        write_text(t, path, "{}");
        snprintf(path, sizeof path, "%s/models--org--m.1/snapshots/other/config.json",
                 cases[i].cache);
        write_text(t, path, "{}");
        snprintf(path, sizeof path, "%s/models--org--m.1/snapshots/abc123", cases[i].cache);
        expect(t, "org/m.1", path);
        CHECK_HERE();
    }
    setenv("HF_HUB_CACHE", "~/.cache/huggingface/hub", 1);
    expect(t, "org/m.1", "home/.cache/huggingface/hub/models--org--m.1/snapshots/abc123");
}

TEST(a_lone_snapshot_needs_no_ref)
{
    clean_environment(t);
    setenv("HF_HOME", in_dir(t, "hf"), 1);
    write_text(t, "hf/hub/models--t5-base/snapshots/aaa/config.json", "{}");
    expect(t, "t5-base", "hf/hub/models--t5-base/snapshots/aaa");
    CHECK_HERE();
    write_text(t, "hf/hub/models--t5-base/snapshots/bbb/config.json", "{}");
    char *dir = NULL;
    ASSERT_ERROR(fsdp_hf_dir_resolve("t5-base", &dir), FSDP_ERR_NOT_FOUND,
                 "snapshots: 2 snapshots and no refs/main");
    write_text(t, "hf/hub/models--t5-base/refs/main", "ccc");
    ASSERT_ERROR(fsdp_hf_dir_resolve("t5-base", &dir), FSDP_ERR_NOT_FOUND,
                 "refs/main names snapshot ccc, which is not there");
    write_text(t, "hf/hub/models--t5-base/refs/main", "../../x");
    ASSERT_ERROR(fsdp_hf_dir_resolve("t5-base", &dir), FSDP_ERR_FORMAT, "refs/main: not the name");
    write_text(t, "hf/hub/models--t5-base/refs/main", "bbb");
    expect(t, "t5-base", "hf/hub/models--t5-base/snapshots/bbb");
    ASSERT(dir == NULL);
}

TEST(an_unknown_model_names_the_folders_searched)
{
    char *dir = NULL;
    clean_environment(t);
    setenv("HF_HOME", in_dir(t, "hf"), 1);
    ASSERT_ERROR(fsdp_hf_dir_resolve("org/none", &dir), FSDP_ERR_NOT_FOUND,
                 "model 'org/none' is neither a directory nor in the Hugging Face cache: "
                 "no models--org--none in ");
    ASSERT(strstr(fsdp_last_error(), in_dir(t, "hf/hub")) != NULL);
    ASSERT(strstr(fsdp_last_error(), in_dir(t, "home/.cache/huggingface/hub")) != NULL);
    static const char *const paths[] = {"/no/such", "./none", "../none", "a/b/c", "a/",
                                        "~/m",      "",       "a b",     "/nope"};
    for (size_t i = 0; i < FSDP_LENGTH(paths); i++)
        ASSERT_ERROR(fsdp_hf_dir_resolve(paths[i], &dir), FSDP_ERR_NOT_FOUND, "no such directory");
    unsetenv("HOME");
    unsetenv("HF_HOME");
    ASSERT_ERROR(fsdp_hf_dir_resolve("t5-base", &dir), FSDP_ERR_NOT_FOUND, "$HOME is not set");
    ASSERT(dir == NULL);
}

static void expect_text(fsdp_test *t, const char *name, const char *expected)
{
    char *text = NULL;
    size_t bytes;
    ASSERT_OK(fsdp_file_read(in_dir(t, name), 100, &text, &bytes));
    ASSERT_STR(text, expected);
    fsdp_free(text);
}

TEST(tokenizer_files_are_copied_through_links)
{
    char **names;
    size_t count;
    write_text(t, "from/blob", "model");
    ASSERT(symlink("blob", in_dir(t, "from/spiece.model")) == 0);
    write_text(t, "from/tokenizer_config.json", "{}");
    write_text(t, "from/config.json", "{}");
    ASSERT_OK(fsdp_directory_make(in_dir(t, "to")));
    ASSERT_OK(fsdp_hf_dir_copy_tokenizer(in_dir(t, "from"), in_dir(t, "to"), "none"));
    ASSERT_OK(fsdp_directory_list(in_dir(t, "to"), &names, &count));
    ASSERT_INT(count, 2); /* no config.json, no blob */
    fsdp_free(names);
    expect_text(t, "to/spiece.model", "model");
    ASSERT(readlink(in_dir(t, "to/spiece.model"), (char[8]){0}, 8) < 0);
}

TEST(a_tokenizer_file_keeps_its_name_if_it_is_one_of_a_tokenizer)
{
    write_text(t, "vocab.txt", "words");
    write_text(t, "debian.model", "pieces");
    ASSERT_OK(fsdp_directory_make(in_dir(t, "to")));
    ASSERT_OK(
        fsdp_hf_dir_copy_tokenizer(in_dir(t, "vocab.txt"), in_dir(t, "to"), "tokenizer.model"));
    ASSERT_OK(
        fsdp_hf_dir_copy_tokenizer(in_dir(t, "debian.model"), in_dir(t, "to"), "tokenizer.model"));
    expect_text(t, "to/vocab.txt", "words");
    CHECK_HERE();
    expect_text(t, "to/tokenizer.model", "pieces");
    CHECK_HERE();
    ASSERT(access(in_dir(t, "to/tokenizer_config.json"), F_OK) != 0);
    write_text(t, "tokenizer_config.json", "{}");
    write_text(t, "special_tokens_map.json", "{}");
    ASSERT_OK(
        fsdp_hf_dir_copy_tokenizer(in_dir(t, "debian.model"), in_dir(t, "to"), "tokenizer.model"));
    expect_text(t, "to/tokenizer_config.json", "{}");
    CHECK_HERE();
    ASSERT(access(in_dir(t, "to/special_tokens_map.json"), F_OK) != 0);
    ASSERT_ERROR(fsdp_hf_dir_copy_tokenizer(in_dir(t, "none.model"), in_dir(t, "to"), "x"),
                 FSDP_ERR_NOT_FOUND, "none.model");
}
