"""DICOM files with identifying tags of every kind, for tests."""

import numpy as np
import pytest

pydicom = pytest.importorskip("pydicom", reason="pydicom is not installed (extra `prep`)")

NAME, INSTITUTION, PATIENT_ID = "Muster^Erika", "Klinik Nord", "K-4711"
UID = "1.2.826.0.1.3680043.8.498.12345"


def write_dicom(path, pixels, **tags):
    """An uncompressed file with identifying tags of every kind; `None` leaves a tag out."""
    pixels = np.asarray(pixels)
    meta = pydicom.dataset.FileMetaDataset()
    meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    meta.MediaStorageSOPInstanceUID = UID
    meta.MediaStorageSOPClassUID = pydicom.uid.NuclearMedicineImageStorage
    header = pydicom.Dataset()
    header.file_meta = meta
    header.PatientName, header.PatientID, header.InstitutionName = NAME, PATIENT_ID, INSTITUTION
    header.SOPInstanceUID = header.StudyInstanceUID = UID
    header.add_new((0x0009, 0x0010), "LO", "VENDOR")
    header.add_new((0x0009, 0x1001), "PN", NAME)
    header.Rows, header.Columns = pixels.shape[-2:]
    if pixels.ndim == 3:
        header.NumberOfFrames = pixels.shape[0]
    bits = 8 * pixels.dtype.itemsize
    standard = {
        "Modality": "CT",
        "SamplesPerPixel": 1,
        "PhotometricInterpretation": "MONOCHROME2",
        "BitsAllocated": bits,
        "BitsStored": bits,
        "HighBit": bits - 1,
        "PixelRepresentation": int(pixels.dtype.kind == "i"),
        "PixelData": pixels.tobytes(),
    }
    for keyword, value in (standard | tags).items():
        if value is not None:
            setattr(header, keyword, value)
    header.save_as(path, enforce_file_format=True)
    return path


def item(**values):
    """A data set of a sequence."""
    dataset = pydicom.Dataset()
    for keyword, value in values.items():
        setattr(dataset, keyword, value)
    return dataset


def write_slice(path, pixels, place, *, facing=(1, 0, 0, 0, 1, 0), spacing=(1, 1), **tags):
    """A classic slice at a position (mm, DICOM axes: left, back, head), instance number 1 like all others."""
    tags = {"Modality": "MR", "InstanceNumber": 1, "SeriesInstanceUID": "1.2.3", "PixelSpacing": list(spacing)} | tags
    return write_dicom(path, pixels, ImagePositionPatient=list(place), ImageOrientationPatient=list(facing), **tags)


def write_enhanced(path, pixels, places, *, facing=(1, 0, 0, 0, 1, 0), **tags):
    """A multi-frame file with a position per frame."""
    shared = item(
        PlaneOrientationSequence=[item(ImageOrientationPatient=list(facing))],
        PixelMeasuresSequence=[item(PixelSpacing=[1, 1])],
    )
    own = [item(PlanePositionSequence=[item(ImagePositionPatient=list(place))]) for place in places]
    tags = {"SharedFunctionalGroupsSequence": [shared], "PerFrameFunctionalGroupsSequence": own} | tags
    return write_dicom(path, pixels, Modality="MR", SeriesInstanceUID="1.2.3", **tags)
