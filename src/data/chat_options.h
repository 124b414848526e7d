/* Options of commands for rows that are conversations. `fsdp train` and `fsdp evaluate` share
 * them. */
#pragma once
#include <stddef.h>

#include <fsdp/data.h>
#include <fsdp/options.h>

typedef struct fsdp_chat_row_options {
    const char *chat_template; /* a file, or a name; NULL: the model's own */
    const char *kwargs;        /* a JSON object of variables for the template; NULL: none */
    bool assistant_only_loss, completion_only_loss;
    /* The following fields are not options. given_completion is true if a flag or a file set
     * completion-only-loss. Each field of asked_for is what fsdp_options_asked_for() returns for
     * the option of the same name. asked_for.completion_only_loss is also true if
     * --completion-only-loss was given on the command line. */
    bool given_completion;
    struct {
        bool assistant_only_loss, completion_only_loss;
    } asked_for;
} fsdp_chat_row_options;

/* Rows for a command's option table. The argument `at` is the offset of an fsdp_chat_row_options in
 * the command's struct. The command calls fsdp_chat_row_options_derive() in its derive(). */
/* clang-format off */
#define FSDP_CHAT_ROW_OPTIONS(at)                                                                  \
    {.name = "chat-template", .aliases = "chat-template-path", .type = FSDP_OPTION_STRING,         \
     FSDP_CHAT_ROW(at, chat_template), .metavar = "NAME|FILE",                                     \
     .shown_default = "the one in the model's folder",                                             \
     .help = "causal-lm, conversations: chatml, gemma, llama3, mistral, qwen2.5, zephyr, a "       \
             "template's name in the model's folder, or a file"},                                  \
    {.name = "chat-template-kwargs", .type = FSDP_OPTION_STRING, FSDP_CHAT_ROW(at, kwargs),        \
     .metavar = "JSON", .help = "more variables for the chat template: {\"enable_thinking\": "     \
     "false}"},                                                                                    \
    {.name = "assistant-only-loss", .type = FSDP_OPTION_BOOL,                                      \
     FSDP_CHAT_ROW(at, assistant_only_loss),                                                       \
     .help = "conversations: only what the assistant says has a loss"},                            \
    {.name = "completion-only-loss", .type = FSDP_OPTION_BOOL,                                     \
     FSDP_CHAT_ROW(at, completion_only_loss), .value = "true",                                     \
     .shown_default = "true for rows with prompt and completion",                                  \
     .help = "only the completion has a loss; of a conversation without prompt and completion, "   \
             "only its last message, if the option is given"}
/* clang-format on */
#define FSDP_CHAT_ROW(at, name) .offset = (at) + offsetof(fsdp_chat_row_options, name)

void fsdp_chat_row_options_derive(fsdp_chat_row_options *chat, const fsdp_options *options);
/* Set the fields of *rows for which there are options, except the template, which the caller
 * sets. */
void fsdp_chat_row_options_apply(const fsdp_chat_row_options *chat, fsdp_chat_rows *rows);
/* Return FSDP_ERR_INVALID if the user asked for an option that has no effect on the rows. `uses` is
 * what fsdp_dataset_uses() returned for the dataset of `path`. */
FSDP_MUST_CHECK fsdp_status fsdp_chat_row_options_check_uses(const fsdp_chat_row_options *chat,
                                                             unsigned uses, const char *path);
