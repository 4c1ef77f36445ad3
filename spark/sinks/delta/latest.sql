-- The newest revision of each coordinate. A repair adds rows to the lake and changes none, so this is a view.
SELECT newest.*
FROM {table} AS newest
-- Nobody gives a negative one.
WHERE coalesce(newest.revision, 0) >= 0 AND NOT EXISTS (
    SELECT 1
    FROM {table} AS later
    -- Later revisions are few, and need not be looked for among all the others.
    WHERE later.revision > 0 AND later.coordinate = newest.coordinate AND later.revision > coalesce(newest.revision, 0)
)
