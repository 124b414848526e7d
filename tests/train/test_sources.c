/* The sources of a run, opened by fsdp_train_run(). */
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/alloc_testing.h"
#include "src/base/io.h"
#include "src/base/str.h"
#include "tests/test.h"
#include "tests/train/small_job.h"

static int count_descriptors(void)
{
    char **names;
    size_t n;
    if (fsdp_directory_list("/proc/self/fd", &names, &n) != FSDP_OK)
        return -1;
    fsdp_free(names);
    return (int)n;
}

/* Write a CSV with so many rows that the allocations that count what is cut are most of a run's. */
static void write_pairs(fsdp_test *t, const char *path)
{
    fsdp_str rows = {0};
    fsdp_str_printf(&rows, "text,headline\n");
    for (int i = 0; i < 400; i++)
        fsdp_str_printf(&rows, "hello world %d,in Paris\n", i);
    ASSERT_OK(fsdp_file_write(path, rows.data, rows.len));
    fsdp_str_fini(&rows);
}

/* A tokenizer of fewer ids than the model of small_job has. */
static void write_tokenizer(fsdp_test *t, const char *dir)
{
    static const char vocab[] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nhello\nworld\nin\nparis\n";
    static const char config[] = "{\"tokenizer_class\": \"BertTokenizer\"}";
    char path[JOB_PATH + 64];
    snprintf(path, sizeof path, "%s/tokenizer", dir);
    ASSERT_OK(fsdp_directory_make(path));
    snprintf(path, sizeof path, "%s/tokenizer/vocab.txt", dir);
    ASSERT_OK(fsdp_file_write(path, vocab, sizeof vocab - 1));
    snprintf(path, sizeof path, "%s/tokenizer/tokenizer_config.json", dir);
    ASSERT_OK(fsdp_file_write(path, config, sizeof config - 1));
}

/* A source that fails after it was opened is closed, also if it is one of several: CSV keeps its
 * file open, so a source that is lost is seen. */
TEST(sources_are_closed_when_memory_runs_out)
{
    NEEDS_LIBCSV();
    char dir[JOB_PATH], path[JOB_PATH + 32], words[4 * JOB_PATH];
    fsdp_train_result result;
    fsdp_group *one;
    int failures = 0;
    fsdp_status status = FSDP_ERR_NOMEM;
    job_make_files(t, dir);
    CHECK_HERE();
    snprintf(path, sizeof path, "%s/pairs.csv", dir);
    write_pairs(t, path);
    CHECK_HERE();
    write_tokenizer(t, dir);
    CHECK_HERE();
    snprintf(words, sizeof words,
             "--data-weight 3 --mix-data seq2seq:1:%s --tokenizer %s/tokenizer --no-save-model "
             "--max-steps 1 --num-workers 0",
             path, dir);
    ASSERT_OK(fsdp_init_process_group(NULL, &one));
    FILE *out = tmpfile();
    const int before = count_descriptors();
    for (long n = 300; status != FSDP_OK; n += n / 16) {
        fsdp_alloc_fail_at(n);
        status = job_train_printing(one, dir, words, out, &result);
        fsdp_alloc_fail_at(0);
        failures += status != FSDP_OK;
        if (status != FSDP_OK)
            ASSERT_INT(status, FSDP_ERR_NOMEM);
        ASSERT_INT(count_descriptors(), before);
    }
    ASSERT(failures > 10);
    fclose(out);
    fsdp_destroy_process_group(one);
}
