/* Runs of fsdp_train_run() for tests, on models whose sizes divide nothing evenly: folders with
 * model and data, and options as words. */
#pragma once
#include <stdio.h>

#include "src/train/trainer.h"
#include "tests/test.h"

enum {
    JOB_PATH = 300
};

/* config.json of a T5, a Llama, a BERT of three classes. */
extern const char job_t5[], job_llama[], job_bert[];

typedef void job_write_rows_fn(fsdp_test *t, const char *path, int rows);
/* Rows of ids for such models. Those of the second and the third kind can be learned. */
job_write_rows_fn job_write_rows, job_write_causal_rows, job_write_classified_rows;

/* A folder with model, 37 training rows and 13 validation rows, whose path all ranks know; rank 0
 * creates it. */
void job_make_files_of(fsdp_test *t, const char *config, job_write_rows_fn *write,
                       char dir[JOB_PATH]);
/* The same with job_t5. */
void job_make_files(fsdp_test *t, char dir[JOB_PATH]);
/* Train on the files in `dir` with the words of `more` (separated by spaces) as additional flags.
 */
fsdp_status job_train(fsdp_group *group, const char *dir, const char *more,
                      fsdp_train_result *result);
/* The same, with lines for the user in `out`. */
fsdp_status job_train_printing(fsdp_group *group, const char *dir, const char *more, FILE *out,
                               fsdp_train_result *result);
/* The same on one rank. */
void job_train_alone(fsdp_test *t, const char *dir, const char *more, fsdp_train_result *result);
/* Number `key` of the first n steps in `dir`/m.jsonl. */
void job_read_steps(fsdp_test *t, const char *dir, const char *key, double *to, int n);
