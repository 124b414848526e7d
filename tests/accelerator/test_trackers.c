/* init_trackers, log, end_training, print. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "tests/accelerator/job.h"
#include "tests/test.h"

enum {
    PATH = 300
};

/* Read `name` in `dir`; the caller frees it. NULL if it is not there. */
static char *text_of(const char *dir, const char *name)
{
    char path[PATH * 2], *text;
    size_t bytes;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return fsdp_file_read(path, 100000, &text, &bytes) == FSDP_OK ? text : NULL;
}

TEST_RANKS(the_main_process_logs_rows, 2)
{
    char dir[PATH], command[PATH * 2];
    fsdp_accelerator *a;
    snprintf(dir, sizeof dir, "%s", fsdp_test_dir(t));
    snprintf(command, sizeof command, "cat >%s/command", dir);
    const fsdp_accelerator_options options = {.group = t->group,
                                              .cpu = true,
                                              .log_with = "json,tensorboard",
                                              .tracker_command = command,
                                              .project_dir = dir};
    const fsdp_tracker_option config[] = {{"lr", "0.5"}, {"data", "mine"}};
    const fsdp_tracker_value values[] = {{"train_loss", 0.25}, {"lr", 0.125}};
    ASSERT_OK(fsdp_accelerator_create(&options, &a));
    ASSERT_ERROR(fsdp_accelerator_log(a, values, 2, 0), FSDP_ERR_STATE,
                 "call fsdp_accelerator_init_trackers() first");
    ASSERT_OK(fsdp_accelerator_init_trackers(a, "project", config, 2));
    ASSERT_ERROR(fsdp_accelerator_init_trackers(a, "project", config, 2), FSDP_ERR_STATE,
                 "open already");
    ASSERT_OK(fsdp_accelerator_log(a, values, 2, 7));
    ASSERT_OK(fsdp_accelerator_log(a, values, 1, -1));
    ASSERT_ERROR(fsdp_accelerator_log(a, (fsdp_tracker_value[]){{"x", 1}, {"x", 2}}, 2, 0),
                 FSDP_ERR_INVALID, "\"x\" is there twice");
    ASSERT_ERROR(fsdp_accelerator_log(a, (fsdp_tracker_value[]){{"step", 1}}, 1, 0),
                 FSDP_ERR_INVALID, "other than kind and step");
    ASSERT_OK(fsdp_accelerator_end_training(a));
    char *lines = text_of(dir, "project/metrics.jsonl"), *sent = text_of(dir, "command");
    ASSERT(lines && sent);
    ASSERT_STR(lines, "{\"kind\": \"log\", \"step\": 7, \"train_loss\": 0.25, \"lr\": 0.125}\n"
                      "{\"kind\": \"log\", \"step\": null, \"train_loss\": 0.25}\n");
    ASSERT(strstr(sent, "\"config\": {\"lr\": \"0.5\", \"data\": \"mine\"}"));
    ASSERT(strstr(sent, "\"train_loss\": 0.25"));
    fsdp_free(lines);
    fsdp_free(sent);
    /* A second training adds to the file. */
    ASSERT_OK(fsdp_barrier(t->group));
    ASSERT_OK(fsdp_accelerator_init_trackers(a, "project", NULL, 0));
    ASSERT_OK(fsdp_accelerator_log(a, values, 1, 8));
    fsdp_accelerator_destroy(a);
    ASSERT_OK(fsdp_barrier(t->group));
    lines = text_of(dir, "project/metrics.jsonl");
    ASSERT(lines && strstr(lines, "\"step\": 7") && strstr(lines, "\"step\": 8"));
    fsdp_free(lines);
}

/* TensorBoard shows values under their own names. */
TEST_RANKS(tensorboard_gets_the_names_of_the_program, 1)
{
    char dir[PATH], path[PATH * 2], **names, *text;
    size_t n, bytes;
    fsdp_accelerator *a;
    snprintf(dir, sizeof dir, "%s", fsdp_test_dir(t));
    const fsdp_accelerator_options options = {
        .group = t->group, .cpu = true, .log_with = "tensorboard", .logging_dir = dir};
    ASSERT_OK(fsdp_accelerator_create(&options, &a));
    ASSERT_OK(fsdp_accelerator_init_trackers(a, "project", NULL, 0));
    ASSERT_OK(fsdp_accelerator_log(a, (fsdp_tracker_value[]){{"my/lr", 0.5}, {"lr", 1}}, 2, 3));
    ASSERT_OK(fsdp_accelerator_end_training(a));
    snprintf(path, sizeof path, "%s/project", dir);
    ASSERT_OK(fsdp_directory_list(path, &names, &n));
    ASSERT_INT(n, 1);
    snprintf(path, sizeof path, "%s/project/%s", dir, names[0]);
    ASSERT_OK(fsdp_file_read(path, 100000, &text, &bytes));
    ASSERT(memmem(text, bytes, "my/lr", 5));
    ASSERT(!memmem(text, bytes, "log/", 4) && !memmem(text, bytes, "learning_rate", 13));
    fsdp_free(text);
    fsdp_free(names);
    fsdp_accelerator_destroy(a);
}

/* A name that comes later makes the file wider; a second program adds to it. */
TEST_RANKS(csv_has_a_column_for_each_name, 2)
{
    char dir[PATH];
    fsdp_accelerator *a;
    snprintf(dir, sizeof dir, "%s", fsdp_test_dir(t));
    const fsdp_accelerator_options options = {
        .group = t->group, .cpu = true, .log_with = "csv", .project_dir = dir};
    ASSERT_OK(fsdp_accelerator_create(&options, &a));
    ASSERT_OK(fsdp_accelerator_init_trackers(a, "project", NULL, 0));
    ASSERT_OK(fsdp_accelerator_log(a, (fsdp_tracker_value[]){{"loss", 0.25}, {"a,b", (double)NAN}},
                                   2, 7));
    ASSERT_OK(fsdp_accelerator_log(a, (fsdp_tracker_value[]){{"x \"y\"", -1.0}}, 1, -1));
    ASSERT_OK(fsdp_accelerator_log(a, (fsdp_tracker_value[]){{"a,b", 2}}, 1, 8));
    if (t->rank == 0)
        ASSERT_ERROR(fsdp_accelerator_log(a, (fsdp_tracker_value[]){{"a\nb", 2}}, 1, 8),
                     FSDP_ERR_INVALID, "a name has a line break");
    ASSERT_OK(fsdp_accelerator_end_training(a));
    ASSERT_OK(fsdp_accelerator_init_trackers(a, "project", NULL, 0));
    ASSERT_OK(fsdp_accelerator_log(a, (fsdp_tracker_value[]){{"z", 3}, {"loss", 1}}, 2, 9));
    fsdp_accelerator_destroy(a);
    ASSERT_OK(fsdp_barrier(t->group));
    char *text = text_of(dir, "project/metrics.csv");
    ASSERT(text);
    ASSERT_STR(text, "step,loss,\"a,b\",\"x \"\"y\"\"\",z\n7,0.25,nan,,\n,,,-1.0,\n8,,2.0,,\n"
                     "9,1.0,,,3.0\n");
    fsdp_free(text);
}

TEST_RANKS(only_the_main_process_prints, 2)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    const fsdp_accelerator_options options = {.group = t->group, .cpu = true, .out = out};
    fsdp_accelerator *a;
    ASSERT_OK(fsdp_accelerator_create(&options, &a));
    ASSERT_OK(fsdp_accelerator_main_process_first_begin(a));
    fsdp_accelerator_print(a, "rank %d", fsdp_accelerator_process_index(a));
    ASSERT_OK(fsdp_accelerator_main_process_first_end(a));
    ASSERT_OK(fsdp_accelerator_wait_for_everyone(a));
    fclose(out);
    ASSERT_STR(text, t->rank == 0 ? "rank 0" : "");
    free(text);
    fsdp_accelerator_destroy(a);
}

TEST_RANKS(trackers_need_a_folder, 2)
{
    const fsdp_accelerator_options options = {.group = t->group, .cpu = true, .log_with = "all"};
    fsdp_accelerator *a;
    ASSERT_OK(fsdp_accelerator_create(&options, &a));
    ASSERT_ERROR(fsdp_accelerator_init_trackers(a, "p", NULL, 0), FSDP_ERR_INVALID,
                 "logging_dir or project_dir must be set");
    fsdp_accelerator_destroy(a);
}
