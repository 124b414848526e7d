/* `fsdp checkpoint verify`: check that a checkpoint is complete and undamaged. */
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/base/shown_text.h"
#include "src/checkpoint_tools/verify.h"
#include "src/cli/checkpoint/checkpoint.h"
#include "src/cli/checkpoint/checkpoint_bar.h"
#include "src/cli/common/cli.h"
#include "src/report/human.h"
#include "src/source/parts.h"
#include "src/train/checkpoint_verify.h"

static const fsdp_options_spec spec = {
    .program = "fsdp checkpoint verify",
    .usage = "PATH",
    .summary = "Read every byte of a checkpoint: bounds, holes and overlaps of tensors and of "
               "their chunks, checksums, what an index and its files name, and that all "
               "floating-point elements are finite. Names each damage; the exit code is 1 if "
               "there is one. In a folder, all files of known kinds are read: a model, an "
               "optimizer or random states next to it, and checkpoints in it; the rest is "
               "listed as not checked.",
    .epilogue = "example:\n  fsdp checkpoint verify out-checkpoints/checkpoint-500\n",
    .positional = "PATH",
    .min_positional = 1,
    .max_positional = 1,
};

static void print_damage(const char *damage, void *context)
{
    char *shown = fsdp_show_lines(damage); /* the text contains names from the checkpoint, which
                                              may have control characters */
    fsdp_checkpoint_bar_clear(context);
    printf("%s\n", shown ? shown : "damaged; there is no memory for the message");
    fsdp_free(shown);
    fflush(stdout); /* print the line before the bar is drawn again */
}

static bool is_whole(const fsdp_verify_result *r)
{
    return !r->damages && !r->unread;
}

static void print_result(const char *path, const fsdp_verify_result *r)
{
    if (r->damages)
        printf("%s: damaged, in %zu place%s\n", path, r->damages, r->damages == 1 ? "" : "s");
    if (r->unread)
        printf("%s: %zu part%s not read\n", path, r->unread, r->unread == 1 ? " was" : "s were");
    if (is_whole(r))
        printf("%s: whole: %zu tensor%s, %zu plain value%s, %s%s\n", path, r->tensors,
               r->tensors == 1 ? "" : "s", r->values, r->values == 1 ? "" : "s",
               fsdp_human_bytes(r->bytes).text,
               r->has_checksums ? "" : " (safetensors have no checksums)");
}

/* Print that a file was not checked, and return FSDP_EXIT_OK. This is not a failure: perhaps only
 * the program that wrote the file can read it. An example is training_args.bin. */
static int print_not_checked(const char *path)
{
    char *shown = fsdp_show_lines(fsdp_last_error());
    printf("%s: not checked: %s\n", path, shown ? shown : "out of memory");
    fsdp_free(shown);
    return FSDP_EXIT_OK;
}

/* Verify one checkpoint and return the exit code. `is_given` is true if the user gave this path. It
 * is false for a path that was found in the user's folder. */
static int verify_one(const char *path, bool is_given)
{
    fsdp_verify_result result;
    fsdp_checkpoint_bar bar = {.description = "verifying"};
    const fsdp_verify_options options = {
        .found = print_damage, .progress = fsdp_checkpoint_bar_step, .context = &bar};
    fsdp_status status = fsdp_verify_checkpoint(path, &options, &result);
    fsdp_checkpoint_bar_end(&bar);
    if (status == FSDP_ERR_UNSUPPORTED && !is_given && !fsdp_path_is_directory(path))
        return print_not_checked(path);
    if (status == FSDP_OK)
        status = fsdp_checkpoint_folder_verify(path, print_damage, &bar, &result.damages);
    if (status != FSDP_OK)
        return fsdp_cli_failed(spec.program);
    print_result(path, &result);
    return is_whole(&result) ? FSDP_EXIT_OK : FSDP_EXIT_FAILURE;
}

/* --- verifying the folders of training checkpoints --- */

static bool is_part(const fsdp_parts *parts, const char *path)
{
    for (size_t i = 0; i < parts->n; i++)
        if (strcmp(parts->paths[i], path) == 0)
            return true;
    return false;
}

/* If `path` is the folder of a training checkpoint (checkpoint-<step>), check that it is complete.
 * Returns the exit code. Do nothing if `path` is one of `parts`, because verify_one() has already
 * checked each of them. */
static int verify_folder(const fsdp_parts *parts, const char *path)
{
    fsdp_verify_result result = {0};
    fsdp_checkpoint_bar none = {0};
    if (is_part(parts, path))
        return FSDP_EXIT_OK;
    if (fsdp_checkpoint_folder_verify(path, print_damage, &none, &result.damages) != FSDP_OK)
        return fsdp_cli_failed(spec.program);
    if (result.damages)
        print_result(path, &result);
    return result.damages ? FSDP_EXIT_FAILURE : FSDP_EXIT_OK;
}

static int verify_folders(const fsdp_parts *parts, const char *path)
{
    char **names;
    size_t n;
    if (!fsdp_path_is_directory(path))
        return FSDP_EXIT_OK;
    if (fsdp_directory_list(path, &names, &n) != FSDP_OK)
        return fsdp_cli_failed(spec.program);
    int code = verify_folder(parts, path);
    for (size_t i = 0; i < n; i++) {
        char *folder = fsdp_path_join(path, names[i]);
        int one = folder ? verify_folder(parts, folder) : fsdp_cli_failed(spec.program);
        code = one == FSDP_EXIT_OK ? code : one;
        fsdp_free(folder);
    }
    fsdp_free(names);
    return code;
}

static int verify_parts(const fsdp_parts *parts, const char *given)
{
    int code = FSDP_EXIT_OK;
    for (size_t i = 0; i < parts->n; i++) {
        int one = verify_one(parts->paths[i], strcmp(parts->paths[i], given) == 0);
        code = one == FSDP_EXIT_OK ? code : one;
    }
    return code;
}

/* List the files and folders whose format this library does not know. They were not checked. */
static void list_others(const fsdp_parts *others)
{
    enum {
        SHOWN = 20
    };
    for (size_t i = 0; i < others->n && i < SHOWN; i++)
        printf("%s%s: not checked\n", others->paths[i],
               fsdp_path_is_directory(others->paths[i]) ? "/" : "");
    if (others->n > SHOWN)
        printf("%zu more files and folders: not checked\n", others->n - SHOWN);
}

static int verify(const char *path)
{
    fsdp_parts parts, others;
    int code;
    if (fsdp_parts_classify(path, &parts, &others) != FSDP_OK) {
        code = fsdp_cli_failed(spec.program);
    } else {
        const int of_parts = verify_parts(&parts, path), of_folders = verify_folders(&parts, path);
        code = of_parts == FSDP_EXIT_OK ? of_folders : of_parts;
        list_others(&others);
    }
    fsdp_parts_fini(&others);
    fsdp_parts_fini(&parts);
    return code;
}

int fsdp_checkpoint_verify(int argc, char **argv)
{
    char nothing;
    fsdp_options *options;
    int count, code = fsdp_cli_options(&spec, argc, argv, &nothing, &options);
    if (code != FSDP_CLI_RUN)
        return code;
    code = verify(fsdp_options_positional(options, &count)[0]);
    fsdp_options_destroy(options);
    return code;
}
