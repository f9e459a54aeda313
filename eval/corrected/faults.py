"""The faults of the published ScintiGround scorer that the corrected profile mends."""

from __future__ import annotations

from eval.schema import Fault

_TABLE = (
    (
        1,
        "vqa_validity",
        "an invalid VQA output can still earn its class",
        "an invalid output scores zero in every task",
    ),
    (
        2,
        "unanswered_negative",
        "an unanswered negative costs nothing in the negative F1",
        "an unanswered record counts as missed in the F1 of its class",
    ),
    (
        3,
        "exact_views",
        "boxes for views that were not asked cost nothing",
        "an output must box exactly the asked views, once each, or is invalid",
    ),
    (
        4,
        "malformed_output",
        "some malformed outputs stop the whole run with an exception",
        "any malformed output is one invalid output",
    ),
    (5, "repeated_ids", "a repeated id replaces the earlier row unseen", "repeated ids are refused, in both profiles"),
    (
        6,
        "early_rounding",
        "rates are rounded before they enter averages",
        "numbers are rounded only when they are printed",
    ),
    (
        7,
        "absent_class",
        "undefined replicates vanish from intervals unseen",
        "balanced accuracy and macro-F1 without one of the classes are 'not defined', with counts; "
        "intervals say in how many resamples",
    ),
    (
        8,
        "region_name",
        "strict scores need the region name, which the question states",
        "strict scores with and without the region name; blanks, underscores and capitals do not matter",
    ),
    (
        9,
        "sweep",
        "the threshold sweep counts lesion VQA rows as misses and ignores validity",
        "the sweep covers box tasks only, per task, on valid outputs",
    ),
    (
        10,
        "iou_average",
        "mean IoU weighs two-view rows double",
        "mean IoU per box, per row and per patient side by side",
    ),
    (
        11,
        "one_validity",
        "validity and audit disagree on blank answers and boxes outside the image",
        "blank answers and boxes outside the image are invalid, in scores and counts alike",
    ),
    (
        12,
        "illegal_label",
        "a row with an unknown class label counts in no class",
        "a record whose class label its task does not have is refused by name",
    ),
    (
        13,
        "empty_stratum",
        "the shoulder stratum never matches a row",
        "strata are those that occur in the records; none is empty",
    ),
    (
        14,
        "unread_outputs",
        "the location-code scorer leaves unreadable outputs out of its averages",
        "missing boxes have IoU 0 and unread classes are missed, whatever the codec",
    ),
    (
        15,
        "tolerant_column",
        "format errors and reading errors are mixed",
        "a tolerant column reads past code fences and surrounding words",
    ),
    (
        16,
        "majority_beside",
        "accuracy is shown without its chance level",
        "the majority share stands beside accuracy, and control folders in the same table",
    ),
    (
        17,
        "no_t_value",
        "a t value is computed on bootstrap replicates, whose number is arbitrary",
        "differences have an interval and a bootstrap p only",
    ),
    (
        18,
        "all_intervals",
        "three intervals of one model are given",
        "every number and every paired difference has its patient-bootstrap interval",
    ),
    (
        19,
        "decoding_noise",
        "repeat decodings moved headline values by up to .025, unsaid in the table",
        "the notes state it, and each system's manifest has batch size, device and precision",
    ),
    (
        27,
        "label_conflict",
        "rows whose region label and hotspot label disagree are mixed in",
        "rows whose region and hotspot labels conflict are a stratum of their own",
    ),
    (
        28,
        "positive_share",
        "the positive share of the test split is not said beside accuracy",
        "counts per class stand at the top of the result",
    ),
)

FAULTS: tuple[Fault, ...] = tuple(
    Fault(number=number, id=name, published=published, corrected=corrected)
    for number, name, published, corrected in _TABLE
)
