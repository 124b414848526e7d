/* Computes ROUGE-1, ROUGE-2, ROUGE-L and ROUGE-Lsum (Lin 2004). The scores equal those of Google's
 * rouge_score package. Text is converted to lower case. Tokens consist of a-z and 0-9, and all
 * other characters separate them. ROUGE-L uses the longest common subsequence of the whole texts.
 * ROUGE-Lsum compares each line of the reference with all lines of the prediction. */
#pragma once
#include <stddef.h>

#include <fsdp/base.h>

/* The score of a prediction. The counts below are of n-grams for ROUGE-1 and ROUGE-2. They are of
 * tokens for ROUGE-L and ROUGE-Lsum, where the matches are the tokens of the longest common
 * subsequences. All fields are in [0, 1]. */
typedef struct fsdp_rouge_score {
    double precision; /* number of matches / number of n-grams or tokens of the prediction */
    double recall;    /* number of matches / number of n-grams or tokens of the reference */
    double fmeasure;  /* harmonic mean of precision and recall; 0 if nothing matches */
} fsdp_rouge_score;

typedef struct fsdp_rouge {
    fsdp_rouge_score rouge1, rouge2, rougeL;
    fsdp_rouge_score rougeLsum; /* 0 unless fsdp_rouge_options asks for it */
} fsdp_rouge;

typedef struct fsdp_rouge_options {
    bool stemmer;   /* as use_stemmer=True: words of more than 3 letters become their stems */
    bool rougeLsum; /* also compute ROUGE-Lsum */
} fsdp_rouge_options;

/* Score one pair of UTF-8 texts. If one of the texts has no token, all scores are 0. */
FSDP_MUST_CHECK fsdp_status fsdp_rouge_pair(const char *reference, const char *prediction,
                                            fsdp_rouge *rouge);

/* Compute the mean scores over n pairs. Returns FSDP_ERR_INVALID if n is 0. */
FSDP_MUST_CHECK fsdp_status fsdp_rouge_mean(const char *const *references,
                                            const char *const *predictions, size_t n,
                                            fsdp_rouge *rouge);

/* Like fsdp_rouge_mean(), but with options. `options` may be NULL. */
FSDP_MUST_CHECK fsdp_status fsdp_rouge_mean_with(const fsdp_rouge_options *options,
                                                 const char *const *references,
                                                 const char *const *predictions, size_t n,
                                                 fsdp_rouge *rouge);

/* Find the best constant sentence: the candidate that gets the highest mean ROUGE-L F-measure if it
 * is the prediction for every reference. Its score is a baseline: a model that has learned only the
 * form of the summaries, and nothing from the articles, gets about the same score. The time is
 * proportional to references x candidates x length. It is about 20 ms for 200 references and 3,000
 * candidates if all texts are short summaries.
 *
 * @param candidates sentences to choose from, usually the training summaries
 * @param best       out: index of the sentence in `candidates`; the first one if several are equal
 * @param rouge      out: mean scores of the sentence over the references; may be NULL
 * @return FSDP_ERR_INVALID if there are no references or no candidates */
FSDP_MUST_CHECK fsdp_status fsdp_rouge_best_constant(const char *const *references,
                                                     size_t n_references,
                                                     const char *const *candidates,
                                                     size_t n_candidates, size_t *best,
                                                     fsdp_rouge *rouge);
