/* Model directories: one file, several files with an index, and damaged ones. */
#include <stdio.h>
#include <string.h>

#include <fsdp/ckpt.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "tests/test.h"

static const char *fixture(const char *name)
{
    static char path[600];
    snprintf(path, sizeof path, "%s/%s", fsdp_test_path("fixtures/hf"), name);
    return path;
}

/* A path in the test's directory; valid until four more calls. */
static const char *in_dir(fsdp_test *t, const char *name)
{
    static char paths[4][300];
    static int next;
    next = (next + 1) % 4;
    snprintf(paths[next], sizeof paths[next], "%s/%s", fsdp_test_dir(t), name);
    return paths[next];
}

static fsdp_status open_and_close(const char *path)
{
    fsdp_checkpoint_reader *reader;
    fsdp_status status = fsdp_checkpoint_open(path, &reader);
    if (status == FSDP_OK)
        fsdp_checkpoint_close(reader);
    return status;
}

TEST(a_directory_with_one_file_is_opened)
{
    fsdp_checkpoint_reader *reader;
    const fsdp_checkpoint_entry *entry = NULL;
    ASSERT_OK(fsdp_checkpoint_open(fixture("t5_v10"), &reader));
    ASSERT_STR(fsdp_checkpoint_path(reader), fixture("t5_v10"));
    ASSERT(fsdp_checkpoint_count(reader) > 40);
    ASSERT_OK(fsdp_checkpoint_get(reader, "shared.weight", &entry));
    ASSERT_OK(fsdp_checkpoint_entry_check_shape(entry, (int64_t[]){11, 8}, 2));
    ASSERT(fsdp_checkpoint_find(reader, "lm_head.weight") == NULL);
    ASSERT_ERROR(fsdp_checkpoint_get(reader, "lm_head.weight", &entry), FSDP_ERR_NOT_FOUND,
                 "t5_v10: tensor 'lm_head.weight' is missing");
    fsdp_checkpoint_close(reader);
    ASSERT_OK(open_and_close(fixture("t5_v10/model.safetensors")));
}

TEST(a_sharded_directory_is_opened_by_its_index)
{
    fsdp_checkpoint_reader *reader;
    ASSERT_OK(fsdp_checkpoint_open(fixture("llama_sharded"), &reader));
    size_t n = fsdp_checkpoint_count(reader), files = 0;
    ASSERT_INT(n, 21);
    for (size_t i = 0; i < n; i++) {
        const fsdp_checkpoint_entry *entry = fsdp_checkpoint_at(reader, i);
        ASSERT(fsdp_checkpoint_find(reader, entry->name) == entry);
        ASSERT(i == 0 || strcmp(fsdp_checkpoint_at(reader, i - 1)->name, entry->name) < 0);
        files += strstr(entry->path, "model-00004-of-00004") != NULL;
    }
    ASSERT(files > 0 && files < n);
    fsdp_checkpoint_close(reader);
    ASSERT_OK(open_and_close(fixture("llama_sharded/model.safetensors.index.json")));
}

static const char *const shard_names[] = {
    "model-00001-of-00004.safetensors", "model-00002-of-00004.safetensors",
    "model-00003-of-00004.safetensors", "model-00004-of-00004.safetensors"};

static void copy_shards(fsdp_test *t)
{
    for (int i = 0; i < 4; i++) {
        char from[100];
        snprintf(from, sizeof from, "llama_sharded/%s", shard_names[i]);
        ASSERT_OK(fsdp_file_copy(fixture(from), in_dir(t, shard_names[i])));
    }
}

/* The fixture's index with the first `from` replaced by `to`. */
static void write_index(fsdp_test *t, const char *from, const char *to)
{
    char *text, *changed = NULL;
    size_t bytes;
    ASSERT_OK(fsdp_file_read(fixture("llama_sharded/model.safetensors.index.json"), 100000, &text,
                             &bytes));
    char *at = strstr(text, from);
    if (at)
        changed = fsdp_strdup_printf("%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    fsdp_status status = changed ? fsdp_file_write(in_dir(t, "model.safetensors.index.json"),
                                                   changed, strlen(changed))
                                 : FSDP_ERR_NOT_FOUND;
    fsdp_free(text);
    fsdp_free(changed);
    ASSERT_OK(status);
}

TEST(an_index_that_does_not_fit_its_files_is_refused)
{
    static const struct {
        const char *from, *to;
        fsdp_status status;
        const char *error;
    } cases[] = {
        {"\"model.norm.weight\"", "\"model.norm2.weight\"", FSDP_ERR_FORMAT,
         "tensor 'model.norm2.weight' is not in model-0000"},
        {"    \"model.embed_tokens.weight\": \"model-00001-of-00004.safetensors\",\n", "",
         FSDP_ERR_FORMAT, "tensor 'model.embed_tokens.weight' is not listed for this file"},
        {"-00004-of-00004.safetensors\"", "-00009-of-00004.safetensors\"", FSDP_ERR_NOT_FOUND,
         "it names 4 files of weights, of which 1 is missing in its folder: "
         "model-00009-of-00004.safetensors"},
        {"\"model-00004-of", "\"../model-00004-of", FSDP_ERR_FORMAT,
         "weight_map.lm_head.weight: expected the name of a file in the folder of the index, found "
         "\"../"},
        {"\"model-00004-of-00004.safetensors\"", "4", FSDP_ERR_FORMAT,
         "weight_map.lm_head.weight: expected a string, found 4"},
        {"weight_map", "weight_list", FSDP_ERR_FORMAT, "weight_map: missing"},
        {"{", "[", FSDP_ERR_FORMAT, "index.json: line "},
    };
    copy_shards(t);
    CHECK_HERE();
    write_index(t, "{", "{");
    CHECK_HERE();
    ASSERT_OK(open_and_close(fsdp_test_dir(t)));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_index(t, cases[i].from, cases[i].to);
        CHECK_HERE();
        fsdp_status status = open_and_close(fsdp_test_dir(t));
        if (status != cases[i].status || !strstr(fsdp_last_error(), cases[i].error))
            FAIL("%s: %s: %s", cases[i].error, fsdp_status_name(status), fsdp_last_error());
    }
}

TEST(directories_without_weights_say_what_was_looked_for)
{
    ASSERT_ERROR(open_and_close(fsdp_test_dir(t)), FSDP_ERR_NOT_FOUND,
                 "no weights there (looked for model.safetensors, model.safetensors.index.json, "
                 "pytorch_model.bin, pytorch_model.bin.index.json and lit_model.pth)");
    ASSERT_ERROR(open_and_close(in_dir(t, "none")), FSDP_ERR_NOT_FOUND, "none: cannot open");
}

/* ---- files of torch.save --------------------------------------------------------------------- */

static const char *bin_fixture(const char *name)
{
    static char path[600];
    snprintf(path, sizeof path, "%s/%s", fsdp_test_path("fixtures/torch"), name);
    return path;
}

TEST(a_directory_of_torch_files_is_opened_by_its_index)
{
    static const char *const names[] = {"a", "b", "c", "d"};
    fsdp_checkpoint_reader *reader;
    ASSERT_OK(fsdp_checkpoint_open(bin_fixture("bin_sharded"), &reader));
    ASSERT_INT(fsdp_checkpoint_count(reader), 4);
    for (size_t i = 0; i < 4; i++) {
        const fsdp_checkpoint_entry *entry = fsdp_checkpoint_at(reader, i);
        ASSERT_STR(entry->name, names[i]);
        ASSERT(fsdp_checkpoint_find(reader, names[i]) == entry);
        ASSERT(
            strstr(entry->path, i % 2 ? "model-00001-of-00002.bin" : "model-00002-of-00002.bin"));
    }
    fsdp_checkpoint_close(reader);
    ASSERT_OK(open_and_close(bin_fixture("bin_sharded/pytorch_model.bin.index.json")));
    ASSERT_OK(open_and_close(bin_fixture("bin_sharded/pytorch_model-00001-of-00002.bin")));
}

/* Files are put into a directory one by one, in increasing order of preference. */
TEST(safetensors_come_before_torch_files_and_files_before_indexes)
{
    static const struct {
        const char *from, *name;
        size_t count;
    } files[] = {
        {"torch/bin_sharded/pytorch_model-00001-of-00002.bin", "pytorch_model-00001-of-00002.bin",
         0},
        {"torch/bin_sharded/pytorch_model-00002-of-00002.bin", "pytorch_model-00002-of-00002.bin",
         0},
        {"torch/bin_sharded/pytorch_model.bin.index.json", "pytorch_model.bin.index.json", 4},
        {"torch/dtypes.pt", "pytorch_model.bin", 16},
        {"hf/llama_sharded/model-00001-of-00004.safetensors", "model-00001-of-00004.safetensors",
         16},
        {"hf/llama_sharded/model-00002-of-00004.safetensors", "model-00002-of-00004.safetensors",
         16},
        {"hf/llama_sharded/model-00003-of-00004.safetensors", "model-00003-of-00004.safetensors",
         16},
        {"hf/llama_sharded/model-00004-of-00004.safetensors", "model-00004-of-00004.safetensors",
         16},
        {"hf/llama_sharded/model.safetensors.index.json", "model.safetensors.index.json", 21},
        {"hf/llama_sharded/model-00004-of-00004.safetensors", "model.safetensors", 1},
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char from[600];
        fsdp_checkpoint_reader *reader;
        snprintf(from, sizeof from, "%s/%s", fsdp_test_path("fixtures"), files[i].from);
        ASSERT_OK(fsdp_file_copy(from, in_dir(t, files[i].name)));
        if (files[i].count == 0) {
            ASSERT_ERROR(open_and_close(fsdp_test_dir(t)), FSDP_ERR_NOT_FOUND, "no weights there");
            continue;
        }
        ASSERT_OK(fsdp_checkpoint_open(fsdp_test_dir(t), &reader));
        ASSERT_INT(fsdp_checkpoint_count(reader), files[i].count);
        fsdp_checkpoint_close(reader);
    }
}

TEST(torch_files_that_cannot_be_read_say_what_to_do)
{
    ASSERT_OK(fsdp_file_copy(bin_fixture("legacy.pt"), in_dir(t, "pytorch_model.bin")));
    ASSERT_ERROR(open_and_close(fsdp_test_dir(t)), FSDP_ERR_UNSUPPORTED,
                 "pytorch_model.bin: legacy torch.save format; load it in torch and save it again");
    ASSERT_OK(fsdp_file_write(in_dir(t, "pytorch_model.pth"), "PK", 2));
    ASSERT_ERROR(open_and_close(in_dir(t, "pytorch_model.pth")), FSDP_ERR_FORMAT,
                 "pytorch_model.pth: truncated or damaged zip archive: it has no end record");
}
