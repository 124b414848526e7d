/* Chat templates: declarations that the files of this folder share, and functions for code in other
 * folders. These functions take a conversation that is a JSON node. */
#pragma once
#include <fsdp/chat.h>

#include "src/base/json.h"
#include "src/text/jinja/jinja.h"
#include "src/text/jinja/lexer.h"

enum {
    FSDP_CHAT_TOKENS = 7 /* the special tokens bos, eos, unk, sep, pad, cls and mask */
};

/* The texts of a folder's special tokens. A text is NULL if the folder has no such token. */
typedef struct fsdp_chat_tokens {
    char *texts[FSDP_CHAT_TOKENS]; /* in the order of fsdp_chat_token_names; owned */
} fsdp_chat_tokens;

extern const char *const fsdp_chat_token_names[FSDP_CHAT_TOKENS]; /* "bos_token", ... */

struct fsdp_chat_template {
    /* where the template comes from, for messages: the path of its file, or the name of a family;
     * owned */
    char *source;
    fsdp_jinja *jinja; /* owned */
    /* the template for conversations with tools; NULL: `jinja` is used for them, too; owned */
    fsdp_jinja *with_tools;
    uint32_t checksum; /* CRC-32 of the texts of both templates */
    fsdp_chat_tokens tokens;
};

/* A template of a folder: its name, such as "default", the path of its file, and its text. */
typedef struct fsdp_chat_source {
    char *name, *path, *text; /* owned */
} fsdp_chat_source;

typedef struct fsdp_chat_sources {
    fsdp_chat_source *items; /* [n] */
    size_t n, cap;
} fsdp_chat_sources;

/* Read all templates in a folder. It is not an error if there are none. */
FSDP_MUST_CHECK fsdp_status fsdp_chat_sources_read(const char *folder, fsdp_chat_sources *sources);
void fsdp_chat_sources_fini(fsdp_chat_sources *sources);
/* Read the special tokens of a folder. It is not an error if a file does not exist. */
FSDP_MUST_CHECK fsdp_status fsdp_chat_tokens_read(const char *folder, fsdp_chat_tokens *tokens);
void fsdp_chat_tokens_fini(fsdp_chat_tokens *tokens);

/* Return the template of the family `name`, such as "chatml", or NULL if there is no such
 * family. */
const char *fsdp_chat_family_template(const char *name);

/* Like fsdp_chat_render(), but for a conversation that has been parsed already. Error messages
 * contain neither the file nor the line of the conversation. */
FSDP_MUST_CHECK fsdp_status fsdp_chat_render_node(const fsdp_chat_template *chat,
                                                  fsdp_json_node conversation,
                                                  const fsdp_chat_options *options,
                                                  fsdp_chat_text *out);
