"""The faults of the published SGMRI-VQA scorer and protocol, and what the corrected profile does about each.

Numbers are those of sgmri.md, section 10. Where nothing can be mended by scoring (the release's own texts, the papers'
settings), the entry says what is stated or recorded instead.
"""

from __future__ import annotations

from eval.schema import Fault

_TABLE = (
    (
        1,
        "yes_no_substring",
        '"no" and "yes" are looked for inside words: "abnormal", "diagnosis" and "noted" read as No',
        "whole words only; a reply that says both is unreadable and scores zero",
    ),
    (
        2,
        "article_as_option",
        'the article "a" is read as option A',
        "a bare letter is an option only as a capital that stands alone, opens the answer or follows a phrase",
    ),
    (
        3,
        "lowest_letter",
        "of several letters, single choice takes the first of the alphabet",
        "of several letters the one after an answer phrase counts, else the reply is wrong",
    ),
    (
        4,
        "denial_to_full_stop",
        'removing "it is not (X)" eats all to the full stop and knows one wording',
        "only the denied letter is removed, in the common wordings",
    ),
    (5, "one_letter_cut", "the final-answer cut keeps one letter of several", "all letters are kept"),
    (6, "options_a_to_d", "only A to D are options", "the options are those of the question"),
    (
        7,
        "last_number",
        "counting takes the last number, often a frame",
        "the number after an answer phrase, else the only one that is no frame or coordinate; number words are read",
    ),
    (
        8,
        "text_key",
        "a closed key that is neither yes/no nor a number never scores, or by accident",
        "the whole text is compared, capitals and punctuation aside",
    ),
    (
        9,
        "open_ended_unscored",
        "open-ended detection, classification and diagnosis get no score, unseen",
        "open-ended keys outside localization and captioning are in no score here either; the notes count them",
    ),
    (
        10,
        "failed_call_scored",
        'a failed call is stored as a text and scored; "[ERROR: No images found]" is right on a No',
        "a failed call has a field of its own, is in no score, and marks the whole table as incomplete",
    ),
    (11, "fixed_image_size", "brain images count as 256 x 256", "the size of each image file"),
    (
        12,
        "guessed_coordinates",
        "the coordinate system is guessed per box and per format",
        "the codec of the run declares one; decoded boxes in native pixels are scored, and what it cannot read is invalid",
    ),
    (
        13,
        "guessed_order",
        "corners or x, y, width, height are guessed from the values",
        "the codec's declared order is followed",
    ),
    (
        14,
        "missing_frame",
        "a box without a frame counts as on frame 1",
        "a box without a frame makes the answer invalid in this benchmark's codecs, counted by reason; one on a frame that "
        "was not shown matches nothing, but is one of the predicted boxes",
    ),
    (
        15,
        "json_frames_ignored",
        "frames of JSON replies are ignored, and boxes in the reasoning win over the list",
        "the declared list is read, frames included; boxes in the reasoning are not looked at",
    ),
    (
        16,
        "frame_words",
        "ranges, slices, numbers after # and remarks between frame and box are not read",
        "the codec `sgmri_text` has a stated grammar of frames with all of these",
    ),
    (
        17,
        "no_clipping",
        "boxes are neither clipped nor checked, and a null coordinate ends the run",
        "both sides are clipped to the image; boxes with nothing inside are left out and counted; null makes one "
        "answer invalid",
    ),
    (
        18,
        "flooding",
        "extra boxes cost nothing in the V-Score",
        "F1 at IoU .3 and .5, and IoU over the larger number of boxes, stand beside it",
    ),
    (
        19,
        "predictions_only",
        "detection numbers are averaged over answers with boxes only",
        "an answer without boxes has 0 everywhere",
    ),
    (
        20,
        "repeated_truth",
        "repeated target boxes and boxes without area stay in the truth",
        "repeated target boxes and those without area are left out before scoring, and counted",
    ),
    (
        21,
        "knee_frame_early",
        "boxes of knee volumes sit one frame too early",
        "scoring moves no frame; an option of preparation does",
    ),
    (
        22,
        "truth_from_text",
        "truth of volumes is partly parsed from answer texts",
        "truth is what preparation joined from the tables; texts are not parsed for it",
    ),
    (
        23,
        "judge_rules",
        "the judge is normalised upwards by its mark for the reference, malformed replies are 0 or dropped, and the model "
        "is named three ways",
        "no normalisation; a call that failed or a reply without three marks from 1 to 10 leaves the record out of judge and "
        "AR-Score, counted; model and address are in the notes; parts are apart. Stated only: the judge still sees neither "
        "question nor image",
    ),
    (
        24,
        "reply_against_answer",
        "the whole reply, reasoning included, is compared with a short answer",
        "answer with answer, as far as the codec tells answer and reasoning apart",
    ),
    (
        25,
        "leftover_places",
        "decimal boxes, other box formats and lower-case frames stay in the compared texts",
        "one grammar of boxes and frames takes all of them out, in localization and captioning",
    ),
    (
        26,
        "pooled_means",
        "means pool organs and depend on task counts; Avg. counts localization twice",
        "one table per task with counts and intervals over volumes, organs as strata, no average over tasks",
    ),
    (
        27,
        "two_countings",
        "counting means boxes in brain and kinds of finding in knee",
        "counting keys stay as they are; the stratum organ keeps brain and knee apart",
    ),
    (
        28,
        "generated_keys",
        "questions and keys come from GPT-4o shown the boxes, sides of brain findings from a fixed x",
        "stated only: keys stay as they are; GPT-4o wrote them and is no fair opponent",
    ),
    (
        29,
        "prompt_size",
        "prompts name wrong image sizes and pixels where thousandths are assumed",
        "prompt and codec are one fingerprinted encoder; different ones are marked in the table",
    ),
    (
        30,
        "unreported_samples",
        "368 of 377 test volumes are scored, the rest is not mentioned",
        "a run must answer every record; invalid and failed ones are counted per task",
    ),
    (
        31,
        "cut_replies",
        "replies cut by the output limit are scored as if whole",
        "the row says that the limit ended it; a cut answer that cannot be read counts as `truncated`",
    ),
    (
        32,
        "always_yes",
        "with 95 % of slices positive, Yes to all is a strong baseline that no table shows",
        "balanced accuracy and the majority share stand beside accuracy; the controls majority, prompt_only and blank_image "
        "belong in the table",
    ),
    (
        33,
        "settings_disagree",
        "paper and code disagree on epochs, GPU, prompt mode and judge",
        "stated only for the published rows; of runs made here manifest and notes record what was used",
    ),
)

FAULTS: tuple[Fault, ...] = tuple(
    Fault(number=number, id=name, published=published, corrected=corrected)
    for number, name, published, corrected in _TABLE
)
