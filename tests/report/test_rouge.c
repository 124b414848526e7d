/* Compares ROUGE with rouge_score 0.1.2 (tests/fixtures/train/make_rouge.py), to the last bit. */
#include <stdio.h>
#include <stdlib.h>

#include "src/base/alloc.h"
#include "src/base/alloc_testing.h"
#include "src/report/porter.h"
#include "src/report/rouge.h"
#include "tests/test.h"

enum {
    MAX_PAIRS = 256,
    LINE_BYTES = 1 << 14
};

typedef struct fixture {
    char *references[MAX_PAIRS], *predictions[MAX_PAIRS];
    double numbers[MAX_PAIRS][9];
    size_t n, best;
    double best_rougeL;
} fixture;

static void fixture_fini(fixture *f)
{
    for (size_t i = 0; i < f->n; i++) {
        fsdp_free(f->references[i]);
        fsdp_free(f->predictions[i]);
    }
}

static void read_fixture(fsdp_test *t, fixture *f)
{
    static char line[LINE_BYTES];
    *f = (fixture){0};
    FILE *file = fopen(fsdp_test_path("fixtures/train/rouge.tsv"), "r");
    ASSERT(file);
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, "best\t", 5) == 0) {
            char *end;
            f->best = strtoul(line + 5, &end, 10);
            f->best_rougeL = strtod(end, NULL);
            continue;
        }
        char *prediction = strchr(line, '\t'), *number = strchr(prediction + 1, '\t');
        *prediction = *number = 0;
        f->references[f->n] = fsdp_strdup(line);
        f->predictions[f->n] = fsdp_strdup(prediction + 1);
        for (int i = 0; i < 9; i++)
            f->numbers[f->n][i] = strtod(number + 1, &number);
        f->n++;
    }
    fclose(file);
    ASSERT_INT(f->n, 90);
}

static void to_numbers(const fsdp_rouge *rouge, double *numbers)
{
    const fsdp_rouge_score scores[] = {rouge->rouge1, rouge->rouge2, rouge->rougeL};
    for (int i = 0; i < 3; i++) {
        numbers[3 * i] = scores[i].precision;
        numbers[3 * i + 1] = scores[i].recall;
        numbers[3 * i + 2] = scores[i].fmeasure;
    }
}

TEST(pairs_score_as_the_rouge_score_package)
{
    fixture f;
    double sums[9] = {0};
    read_fixture(t, &f);
    CHECK_HERE();
    for (size_t i = 0; i < f.n; i++) {
        fsdp_rouge rouge;
        double numbers[9];
        ASSERT_OK(fsdp_rouge_pair(f.references[i], f.predictions[i], &rouge));
        to_numbers(&rouge, numbers);
        for (int j = 0; j < 9; j++) {
            if (numbers[j] != f.numbers[i][j])
                FAIL("pair %zu, number %d: %.17g instead of %.17g: %s", i, j, numbers[j],
                     f.numbers[i][j], f.references[i]);
            sums[j] += numbers[j];
        }
    }
    fsdp_rouge mean;
    double means[9];
    ASSERT_OK(fsdp_rouge_mean((const char *const *)f.references, (const char *const *)f.predictions,
                              f.n, &mean));
    to_numbers(&mean, means);
    for (int j = 0; j < 9; j++)
        ASSERT_F32(means[j], sums[j] / (double)f.n);
    fixture_fini(&f);
}

TEST(best_constant_sentence_is_the_one_rouge_score_finds)
{
    fixture f;
    read_fixture(t, &f);
    CHECK_HERE();
    size_t best;
    fsdp_rouge rouge;
    const char *const *references = (const char *const *)f.references;
    const char *const *candidates = (const char *const *)f.predictions;
    ASSERT_OK(fsdp_rouge_best_constant(references, f.n, candidates, f.n, &best, &rouge));
    ASSERT_INT(best, f.best);
    ASSERT_NEAR(rouge.rougeL.fmeasure, f.best_rougeL, 1e-15);
    fixture_fini(&f);
}

TEST(of_equal_constant_sentences_the_first_is_taken)
{
    const char *const references[] = {"a b"}, *const candidates[] = {"x", "A b.", "a b"};
    size_t best;
    ASSERT_OK(fsdp_rouge_best_constant(references, 1, candidates, 3, &best, NULL));
    ASSERT_INT(best, 1);
}

/* The quadratic programme over all prefixes, for random texts of up to 200 tokens from a vocabulary
 * of four. Bit-parallel programmes tend to fail at lengths around multiples of 64. */
static size_t naive_lcs(const char *a, size_t n, const char *b, size_t m)
{
    static size_t length[201][201];
    for (size_t i = 1; i <= n; i++)
        for (size_t j = 1; j <= m; j++) {
            size_t longer =
                length[i - 1][j] > length[i][j - 1] ? length[i - 1][j] : length[i][j - 1];
            length[i][j] = a[i - 1] == b[j - 1] ? length[i - 1][j - 1] + 1 : longer;
        }
    return length[n][m];
}

TEST(rougeL_is_the_naive_longest_common_subsequence)
{
    static const size_t lengths[] = {1, 2, 5, 63, 64, 65, 127, 128, 129, 192, 200};
    char a[201], b[201], text_a[402], text_b[402];
    unsigned seed = 7;
    for (size_t k = 0; k < 121; k++) {
        size_t n = lengths[k % 11], m = lengths[k / 11];
        for (size_t i = 0; i < 200; i++) {
            a[i] = (char)('a' + ((seed = seed * 1103515245u + 12345u) >> 16) % 4);
            b[i] = (char)('a' + ((seed = seed * 1103515245u + 12345u) >> 16) % 4);
            text_a[2 * i] = a[i];
            text_b[2 * i] = b[i];
            text_a[2 * i + 1] = text_b[2 * i + 1] = ' ';
        }
        text_a[2 * n] = text_b[2 * m] = 0;
        fsdp_rouge rouge;
        ASSERT_OK(fsdp_rouge_pair(text_a, text_b, &rouge));
        ASSERT_F32(rouge.rougeL.recall, (double)naive_lcs(a, n, b, m) / (double)n);
    }
}

TEST(empty_lists_are_refused)
{
    fsdp_rouge rouge;
    size_t best;
    const char *const one[] = {"a"};
    ASSERT_ERROR(fsdp_rouge_mean(one, one, 0, &rouge), FSDP_ERR_INVALID, "no texts");
    ASSERT_ERROR(fsdp_rouge_best_constant(one, 1, NULL, 0, &best, NULL), FSDP_ERR_INVALID,
                 "0 candidates");
}

/* Every allocation in turn fails: an error each time, and nothing leaks (ASan checks). */
TEST(a_failed_allocation_is_an_error)
{
    const char *const references[] = {"one two three", "four"}, *const candidates[] = {"two", "x"};
    for (long n = 1;; n++) {
        size_t best = 99;
        fsdp_alloc_fail_at(n);
        fsdp_status status = fsdp_rouge_best_constant(references, 2, candidates, 2, &best, NULL);
        fsdp_alloc_fail_at(0);
        if (status == FSDP_OK) {
            ASSERT(n > 10);
            break;
        }
        ASSERT_INT(status, FSDP_ERR_NOMEM);
        ASSERT_INT(best, 99);
    }
}

/* Values of rouge_score 0.1.2 with use_stemmer=False, then True. */
TEST(stems_and_lines_are_scored_as_by_rouge_score)
{
    static const char reference[] = "The runners were running quickly.\nCats sat happily on mats\n";
    static const char prediction[] = "Cats sitting happy on a mat\n\nA runner runs quick, quickly";
    fsdp_rouge plain, stemmed;
    const fsdp_rouge_options no_stems = {.rougeLsum = true};
    const fsdp_rouge_options stems = {.rougeLsum = true, .stemmer = true};
    const char *const r = reference, *const p = prediction;
    ASSERT_OK(fsdp_rouge_mean_with(&no_stems, &r, &p, 1, &plain));
    ASSERT_OK(fsdp_rouge_mean_with(&stems, &r, &p, 1, &stemmed));
    ASSERT_NEAR(plain.rouge1.fmeasure, 0.28571428571428564, 1e-15);
    ASSERT_NEAR(plain.rougeL.fmeasure, 0.1904761904761905, 1e-15);
    ASSERT_NEAR(plain.rougeLsum.fmeasure, 0.28571428571428564, 1e-15);
    ASSERT_NEAR(stemmed.rouge1.fmeasure, 0.5714285714285713, 1e-15);
    ASSERT_NEAR(stemmed.rouge2.fmeasure, 0.0, 1e-15);
    ASSERT_NEAR(stemmed.rougeL.fmeasure, 0.28571428571428564, 1e-15);
    ASSERT_NEAR(stemmed.rougeLsum.fmeasure, 0.5714285714285713, 1e-15);
}

/* Values of NLTK's PorterStemmer. */
TEST(stems_are_those_of_nltk)
{
    static const char *const words[][2] = {{"caresses", "caress"},
                                           {"ponies", "poni"},
                                           {"ties", "tie"},
                                           {"cats", "cat"},
                                           {"feed", "feed"},
                                           {"agreed", "agre"},
                                           {"plastered", "plaster"},
                                           {"motoring", "motor"},
                                           {"sing", "sing"},
                                           {"conflated", "conflat"},
                                           {"troubled", "troubl"},
                                           {"sized", "size"},
                                           {"hopping", "hop"},
                                           {"falling", "fall"},
                                           {"failing", "fail"},
                                           {"filing", "file"},
                                           {"happy", "happi"},
                                           {"enjoy", "enjoy"},
                                           {"sky", "sky"},
                                           {"dying", "die"},
                                           {"relational", "relat"},
                                           {"conditional", "condit"},
                                           {"valenci", "valenc"},
                                           {"radically", "radic"},
                                           {"analogously", "analog"},
                                           {"generalization", "gener"},
                                           {"geology", "geolog"},
                                           {"analogy", "analog"},
                                           {"probate", "probat"},
                                           {"cease", "ceas"},
                                           {"controlling", "control"},
                                           {"rolling", "roll"},
                                           {"adoption", "adopt"},
                                           {"replacement", "replac"},
                                           {"yyyy", "yyyi"},
                                           {"boyed", "boy"},
                                           {"tied", "tie"},
                                           {"skies", "sky"},
                                           {"running", "run"},
                                           {"abc1ing", "abc1"}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        char text[32];
        size_t length = strlen(words[i][0]);
        memcpy(text, words[i][0], length);
        fsdp_porter_stem(text, &length);
        text[length] = 0;
        ASSERT_STR(text, words[i][1]);
    }
}
