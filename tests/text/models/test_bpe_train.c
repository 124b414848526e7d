/* Learning a byte-level BPE vocabulary, against BpeTrainer of the tokenizers library, whose results
 * are in fixtures/text/training.jsonl (made by make_training.py there). */
#include "src/text/models/bpe_train.h"

#include <stdio.h>

#include "src/base/alloc.h"
#include "src/base/alloc_testing.h"
#include "src/base/io.h"
#include "src/base/json.h"
#include "tests/text/models/models.h"

static const char *const special[] = {"<s>"};

static void add_words(fsdp_test *t, fsdp_bpe_trainer *trainer, fsdp_json_node words)
{
    for (fsdp_json_node v = fsdp_json_first(words); v.value; v = fsdp_json_next(v)) {
        int64_t count;
        ASSERT_OK(fsdp_json_get_i64(v, NULL, 1, 1000, &count));
        ASSERT_OK(fsdp_bpe_trainer_add(trainer, v.key, strlen(v.key), (uint64_t)count - 1));
        ASSERT_OK(fsdp_bpe_trainer_add(trainer, v.key, strlen(v.key), 1));
    }
}

static void check_merges(fsdp_test *t, const fsdp_bpe_learned *learned, fsdp_json_node merges)
{
    ASSERT_INT(learned->n_merges, fsdp_json_len(merges));
    for (size_t i = 0; i < learned->n_merges; i++) {
        const fsdp_bpe_merge *m = &learned->merges[i];
        int64_t *ids = NULL;
        size_t n = 0;
        ASSERT_OK(fsdp_json_get_i64s(fsdp_json_at(merges, i), NULL, 0, 1000, &ids, &n));
        bool same = n == 3 && ids[0] == m->left && ids[1] == m->right && ids[2] == m->result;
        fsdp_free(ids);
        if (!same)
            FAIL("merge %zu is %d %d", i, (int)m->left, (int)m->right);
        ASSERT_INT(m->rank, i);
    }
}

static void check_row(fsdp_test *t, fsdp_json_node row)
{
    fsdp_bpe_trainer *trainer = NULL;
    fsdp_bpe_learned learned = {0};
    fsdp_json_node words, merges;
    fsdp_bpe_train_options options = {.special_tokens = special, .n_special_tokens = 1};
    ASSERT_OK(fsdp_bpe_trainer_create(&trainer));
    ASSERT_OK(fsdp_json_get_object(row, "words", &words));
    ASSERT_OK(fsdp_json_get_array(row, "merges", &merges));
    ASSERT_OK(fsdp_json_get_i64(row, "size", 1, 1000, &options.vocab_size));
    ASSERT_OK(fsdp_json_get_i64(row, "min_frequency", 0, 1000, &options.min_frequency));
    add_words(t, trainer, words);
    CHECK_HERE();
    ASSERT_OK(fsdp_bpe_trainer_learn(trainer, &options, &learned));
    check_merges(t, &learned, merges);
    fsdp_bpe_learned_fini(&learned);
    fsdp_bpe_trainer_destroy(trainer);
}

TEST(merges_are_those_of_the_tokenizers_library)
{
    char *lines = NULL;
    size_t bytes = 0;
    int rows = 0;
    ASSERT_OK(
        fsdp_file_read(fsdp_test_path("fixtures/text/training.jsonl"), 1 << 24, &lines, &bytes));
    for (char *line = lines; *line && !t->failed; rows++) {
        size_t length = strcspn(line, "\n");
        fsdp_json *doc;
        ASSERT_OK(fsdp_json_parse("training.jsonl", rows + 1, line, length, &doc));
        check_row(t, fsdp_json_root(doc));
        fsdp_json_destroy(doc);
        line += length + (line[length] == '\n');
    }
    fsdp_free(lines);
    ASSERT_INT(rows, 24);
}

/* The result is a model, which splits the words that it was learned from. */
TEST(what_was_learned_is_a_model)
{
    fsdp_bpe_trainer *trainer = NULL;
    fsdp_bpe_learned learned = {0};
    fsdp_token_model *model = NULL;
    fsdp_token_work *work = NULL;
    const fsdp_bpe_train_options options = {260, 2, special, 1};
    const fsdp_bpe_options bytes = {.raw_bytes = true};
    ASSERT_OK(fsdp_bpe_trainer_create(&trainer));
    ASSERT_OK(fsdp_bpe_trainer_add(trainer, " low", 4, 5));
    ASSERT_OK(fsdp_bpe_trainer_add(trainer, " \xFF", 2, 1));
    ASSERT_OK(fsdp_bpe_trainer_learn(trainer, &options, &learned));
    fsdp_bpe_trainer_destroy(trainer);
    ASSERT_INT(learned.n_merges, 3);
    ASSERT_OK(
        fsdp_bpe_create(learned.vocabulary, learned.merges, learned.n_merges, &bytes, &model));
    learned.vocabulary = NULL;
    fsdp_bpe_learned_fini(&learned);
    ASSERT_OK(fsdp_token_work_create(&work));
    ASSERT_INT(model->ops->size(model), 260);
    ASSERT_INT(model->ops->id_of(model, "<s>", 3), 0);
    ASSERT_INT(model->ops->id_of(model, "!", 1), 1);
    ASSERT_INT(model->ops->id_of(model, "\u0143", 2), 256);
    check_tokens(t, model, work, " low", 4, "259:0:4");
    fsdp_token_work_destroy(work);
    fsdp_token_model_destroy(model);
}

TEST(sizes_without_room_are_refused)
{
    fsdp_bpe_trainer *trainer = NULL;
    fsdp_bpe_learned learned = {0};
    fsdp_bpe_train_options options = {256, 0, special, 1};
    ASSERT_OK(fsdp_bpe_trainer_create(&trainer));
    ASSERT_ERROR(fsdp_bpe_trainer_learn(trainer, &options, &learned), FSDP_ERR_INVALID,
                 "a vocabulary of 256 tokens has no room for the 257 bytes and special tokens");
    options.vocab_size = 1 << 24;
    ASSERT_ERROR(fsdp_bpe_trainer_learn(trainer, &options, &learned), FSDP_ERR_INVALID, "16777216");
    options.vocab_size = 300;
    ASSERT_OK(fsdp_bpe_trainer_learn(trainer, &options, &learned));
    ASSERT_INT(learned.n_merges, 0);
    ASSERT_INT(fsdp_vocabulary_size(learned.vocabulary), 257);
    fsdp_bpe_learned_fini(&learned);
    fsdp_bpe_trainer_destroy(trainer);
    fsdp_bpe_trainer_destroy(NULL);
}

/* A word of 300 KB: each merge visits the positions of its pair only. */
TEST(long_words_are_learned_in_time)
{
    enum {
        BYTES = 300000
    };
    char *word = fsdp_calloc(BYTES, 1);
    fsdp_bpe_trainer *trainer = NULL;
    fsdp_bpe_learned learned = {0};
    const fsdp_bpe_train_options options = {8000, 2, special, 1};
    uint64_t state = 1;
    ASSERT(word);
    for (int i = 0; i < BYTES; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        word[i] = "abcdefgh"[state >> 61];
    }
    ASSERT_OK(fsdp_bpe_trainer_create(&trainer));
    ASSERT_OK(fsdp_bpe_trainer_add(trainer, word, BYTES, 1));
    ASSERT_OK(fsdp_bpe_trainer_learn(trainer, &options, &learned));
    ASSERT(learned.n_merges > 7000);
    fsdp_bpe_learned_fini(&learned);
    fsdp_bpe_trainer_destroy(trainer);
    fsdp_free(word);
}

static fsdp_status learn_something(void)
{
    fsdp_bpe_trainer *trainer = NULL;
    fsdp_bpe_learned learned = {0};
    const fsdp_bpe_train_options options = {300, 0, special, 1};
    fsdp_status status = fsdp_bpe_trainer_create(&trainer);
    for (int i = 0; i < 20 && status == FSDP_OK; i++)
        status = fsdp_bpe_trainer_add(trainer, &"abcdeabdecbadbcabedbcabdeabcedabc"[i], 12, 1);
    if (status == FSDP_OK)
        status = fsdp_bpe_trainer_learn(trainer, &options, &learned);
    fsdp_bpe_learned_fini(&learned);
    fsdp_bpe_trainer_destroy(trainer);
    return status;
}

TEST(failing_allocations_are_reported)
{
    fsdp_status status = FSDP_ERR_NOMEM;
    long n = 0;
    while (status == FSDP_ERR_NOMEM && n < 1000) {
        fsdp_alloc_fail_at(++n);
        status = learn_something();
        fsdp_alloc_fail_at(0);
    }
    ASSERT_OK(status);
    ASSERT(n > 20);
}
