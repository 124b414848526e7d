/* The mask token and other special tokens in the files of a tokenizer. */
#include "src/pretrained/mask_ids.h"

#include <stdio.h>
#include <string.h>

#include "src/base/alloc_testing.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "tests/test.h"

static void write_file(fsdp_test *t, const char *name, const char *text)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", fsdp_test_dir(t), name);
    ASSERT_OK(fsdp_file_write(path, text, strlen(text)));
}

static void check_ids(fsdp_test *t, int32_t mask, const int32_t *special, size_t n)
{
    fsdp_mask_ids ids;
    ASSERT_OK(fsdp_mask_ids_read(NULL, fsdp_test_dir(t), 10, &ids));
    ASSERT_INT(ids.mask_token_id, mask);
    ASSERT_INT(ids.n_special, n);
    for (size_t i = 0; i < n; i++)
        ASSERT_INT(ids.special[i], special[i]);
    fsdp_mask_ids_fini(&ids);
}

TEST(a_folder_without_a_tokenizer_has_no_mask_token)
{
    check_ids(t, -1, NULL, 0);
}

/* vocab.txt with both kinds of line ends; the id of a token is the number of its line, from 0. */
TEST(lines_of_vocab_txt_are_ids)
{
    static const int32_t special[] = {0, 2, 3, 5};
    write_file(t, "vocab.txt", "[PAD]\na\r\n[MASK]\r\n[CLS]\n[MASK]s\n[SEP]");
    CHECK_HERE();
    check_ids(t, 2, special, FSDP_LENGTH(special));
}

/* The first folder has special tokens, but no mask token, so all ids are those of the second. */
TEST(ids_of_two_folders_are_not_mixed)
{
    static const int32_t special[] = {2, 4};
    char first[400], path[500];
    fsdp_mask_ids ids;
    snprintf(first, sizeof first, "%s/first", fsdp_test_dir(t));
    ASSERT_OK(fsdp_directory_make(first));
    snprintf(path, sizeof path, "%s/vocab.txt", first);
    ASSERT_OK(fsdp_file_write(path, "[PAD]\n[CLS]\n[SEP]\n", 18));
    write_file(t, "vocab.txt", "a\nb\n[MASK]\nc\n[CLS]\n");
    CHECK_HERE();
    ASSERT_OK(fsdp_mask_ids_read(first, fsdp_test_dir(t), 10, &ids));
    ASSERT_INT(ids.mask_token_id, 2);
    ASSERT_INT(ids.n_special, FSDP_LENGTH(special));
    ASSERT(memcmp(ids.special, special, sizeof special) == 0);
    fsdp_mask_ids_fini(&ids);
}

TEST(special_added_tokens_of_tokenizer_json_are_read)
{
    static const int32_t special[] = {1, 7};
    write_file(t, "vocab.txt", "[MASK]\n");
    write_file(t, "tokenizer_config.json", "{\"mask_token\": {\"content\": \"<mask>\"}}");
    write_file(t, "tokenizer.json",
               "{\"added_tokens\": [{\"id\": 1, \"content\": \"<s>\", \"special\": true},"
               "{\"id\": 3, \"content\": \"x\", \"special\": false},"
               "{\"id\": 7, \"content\": \"<mask>\", \"special\": true},"
               "{\"id\": 10, \"content\": \"beyond the model\", \"special\": true}]}");
    CHECK_HERE();
    check_ids(t, 7, special, FSDP_LENGTH(special));
    CHECK_HERE();
    write_file(t, "tokenizer_config.json", "{\"mask_token\": \"x\"}");
    check_ids(t, 3, special, FSDP_LENGTH(special));
}

TEST(broken_files_are_named)
{
    fsdp_mask_ids ids;
    write_file(t, "tokenizer.json", "{\"added_tokens\": [{\"content\": \"<s>\"}]}");
    ASSERT_ERROR(fsdp_mask_ids_read(NULL, fsdp_test_dir(t), 10, &ids), FSDP_ERR_NOT_FOUND,
                 "tokenizer.json: added_tokens[0].id: missing");
    write_file(t, "tokenizer.json", "{\"added_tokens\": 5}");
    ASSERT_ERROR(fsdp_mask_ids_read(NULL, fsdp_test_dir(t), 10, &ids), FSDP_ERR_FORMAT,
                 "tokenizer.json: added_tokens: expected");
}

TEST(reading_without_memory_leaves_nothing)
{
    fsdp_mask_ids ids;
    fsdp_status status = FSDP_ERR_NOMEM;
    write_file(t, "vocab.txt", "[PAD]\n[MASK]\n");
    for (long n = 1; status != FSDP_OK; n++) {
        ASSERT_INT(status, FSDP_ERR_NOMEM);
        fsdp_alloc_fail_at(n);
        status = fsdp_mask_ids_read("spiece.model", fsdp_test_dir(t), 10, &ids);
        fsdp_alloc_fail_at(0);
    }
    fsdp_mask_ids_fini(&ids);
}
