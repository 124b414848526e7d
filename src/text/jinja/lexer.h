/* Splits a template into tokens, like Jinja2's lexer with the options trim_blocks and
 * lstrip_blocks. */
#pragma once
#include "src/text/jinja/machine.h"
#include "src/text/jinja/value.h"

typedef enum jinja_token_type {
    JINJA_TOKEN_END,  /* the template ends */
    JINJA_TOKEN_DATA, /* text outside of tags */
    JINJA_TOKEN_BLOCK_BEGIN,
    JINJA_TOKEN_BLOCK_END,
    JINJA_TOKEN_VARIABLE_BEGIN,
    JINJA_TOKEN_VARIABLE_END,
    JINJA_TOKEN_NAME,
    JINJA_TOKEN_STRING,
    JINJA_TOKEN_NUMBER,   /* an integer or a float */
    JINJA_TOKEN_OPERATOR, /* `text` is the operator: "+", "==", "(" and so on */
} jinja_token_type;

typedef struct jinja_token {
    jinja_token_type type;
    int line;
    /* the name, the operator, the data, or the string after its escapes have been replaced */
    jinja_string text;
    jinja_value number;
} jinja_token;

typedef struct jinja_tokens {
    jinja_token *items; /* [n], allocated with fsdp_realloc(); the last token is JINJA_TOKEN_END */
    size_t n, cap;
} jinja_tokens;

enum {
    JINJA_MAX_SOURCE = 1024 * 1024 /* largest size of a template in bytes */
};

/* Split `source` [bytes], which is UTF-8, into tokens. The texts of the tokens are in the memory of
 * `machine`. If the result is FSDP_ERR_FORMAT, the error message contains the line. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_tokenize(jinja_machine *machine, const char *source,
                                                size_t bytes, jinja_tokens *tokens);
