/* Declares the table of the questions of `fsdp config`, which questions.c asks. */
#pragma once
#include "src/accelerate/yaml_tree.h"

enum {
    FSDP_QUESTIONS = 44
};

typedef struct fsdp_answers {
    char *values[FSDP_QUESTIONS]; /* texts for the file; NULL: the question does not apply */
    /* values of the answers that the command line gives as "key=value"; NULL: none */
    char *given[FSDP_QUESTIONS];
    /* keys of the answers in `given`, as the user typed them, with underscores for dashes */
    char *typed[FSDP_QUESTIONS];
} fsdp_answers;

typedef enum fsdp_question_kind {
    FSDP_ASK_YES_NO,
    FSDP_ASK_CHOICE,
    FSDP_ASK_INT,
    FSDP_ASK_TEXT
} fsdp_question_kind;

typedef struct fsdp_question {
    /* Key in the file; if several questions have the same key, at most one of them applies. */
    const char *key;
    /* The map that contains the key; NULL: the top level; "": the answer is not written to the
     * file. */
    const char *section;
    const char *prompt;
    fsdp_question_kind kind;
    const char *const *values;             /* CHOICE: NULL-terminated */
    const char *const *shown;              /* CHOICE: what the menu shows; NULL: `values` */
    const char *value;                     /* default; NULL: the question has no default */
    const char *default_without_questions; /* default if the user is not asked; NULL: `value` */
    long least;                            /* INT: the smallest number that is allowed */
    bool may_be_empty;
    bool (*applies)(const fsdp_answers *answers);
    /* Returns true if the user is asked; if not, the question gets its default. NULL: the user is
     * asked whenever the question applies. */
    bool (*asked)(const fsdp_answers *answers);
    const char *(*refuse)(const char *value); /* returns the reason why `value` is refused; NULL:
                                                 `value` is allowed */
    const char *needs; /* for an error message: which answers make this question apply */
    const char *hint;  /* YES_NO: added to the error message for a wrong answer; may be NULL */
} fsdp_question;

extern const fsdp_question fsdp_questions[FSDP_QUESTIONS];

/* Return the answer to the question that has this key and applies; "" if there is none. */
const char *fsdp_answer(const fsdp_answers *answers, const char *key);
bool fsdp_answer_is(const fsdp_answers *answers, const char *key, const char *value);
/* Return FSDP_ERR_INVALID if answers contradict each other. */
FSDP_MUST_CHECK fsdp_status fsdp_answers_check(const fsdp_answers *answers);
/* Write the answers, and the keys that Accelerate always writes, into the empty map `config`. */
FSDP_MUST_CHECK fsdp_status fsdp_answers_write(const fsdp_answers *answers, fsdp_yaml *config);
