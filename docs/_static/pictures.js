// A tap on a picture opens it alone, as large as it is.
document.addEventListener("DOMContentLoaded", () => {
  for (const image of document.querySelectorAll(".bd-article img")) {
    if (image.closest("a, .sd-card")) continue;
    const link = document.createElement("a");
    link.href = image.src;
    link.className = "picture";
    image.replaceWith(link);
    link.append(image);
  }
});
